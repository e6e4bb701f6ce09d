"""Who changed a device, as gNMI tells those that subscribe."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from types import SimpleNamespace

from finsy import GNMIPath
from finsy.proto import gnmi

from softswitch.gnmi.service import GnmiService
from softswitch.p4runtime.device import Device


def test_a_subscriber_is_not_foreign_to_itself() -> None:
    device = Device()
    service = GnmiService({1: device})
    path = GNMIPath("/softswitch:foreign-writer").path
    wanted = gnmi.SubscriptionList(mode=gnmi.SubscriptionList.ONCE)
    wanted.subscription.add(path=path)
    request = gnmi.SubscribeRequest(subscribe=wanted)

    def foreign(reader: str) -> list[str]:
        def add_callback(_callback: Callable[[], None]) -> bool:
            return True

        call = SimpleNamespace(peer=lambda: reader, add_callback=add_callback)
        # gRPC serves each call in a context of its own.
        answers = Context().run(list, service.subscribe([request], call))
        return [update.val.string_val for update in answers[0].update.update]

    with device.qos.writers.noting("ours", ""):
        pass
    assert foreign("ours") == []
    assert foreign("theirs") == ["the default role at ours"]
