"""A watch port must exist when it is written (P4Runtime 1.5, "Action Profile Group Programming"),
and may go and come afterwards.
"""

from __future__ import annotations

from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.gnmi.qos import QosPort
from softswitch.p4runtime.device import Device
from softswitch.rpc.status import Code
from tests.softswitch.p4runtime.conftest import CPU_PORT, Controller, Everything
from tests.softswitch.p4runtime.test_ports import KEY, ONE_SHOT, forward, ports
from tests.softswitch.tm.native import SchedulerInC

MEMBER = f"action_profile_member {{ action_profile_id: $chooser member_id: 2 {forward(2)} }}"


@pytest.fixture
def existing() -> dict[int, QosPort]:
    """Return the ports that the device has: 2 and 3."""
    return {port: SchedulerInC(10**9) for port in (2, 3)}


@pytest.fixture
def controller(existing: dict[int, QosPort], program: Everything) -> Controller:
    device = Device(ports=existing, cpu_port=CPU_PORT)
    device.install(program.config())
    return Controller(device, program)


def group(watch: str) -> str:
    return f"""action_profile_group {{ action_profile_id: $chooser group_id: 1
        members {{ member_id: 2 weight: 1 {watch} }} }}"""


@pytest.mark.parametrize("kind", ["INSERT", "MODIFY"])
@pytest.mark.parametrize("watch", ['watch_port: "\\x07"', "watch: 7", 'watch_port: "\\x00"'])
def test_a_port_that_does_not_exist(controller: Any, kind: str, watch: str) -> None:
    controller.do("INSERT", MEMBER)
    if kind == "MODIFY":
        controller.do("INSERT", group('watch_port: "\\x02"'))
    before = controller.read("action_profile_group { }")
    (status,) = controller.write(controller.program.update(kind, group(watch)))
    assert status.code == Code.INVALID_ARGUMENT
    port = 0 if "00" in watch else 7
    assert f"this switch has no port {port}; add the port first" in status.message
    assert controller.read("action_profile_group { }") == before


@pytest.mark.parametrize(
    "watch", ['watch_port: "\\x02"', "watch: 2", 'watch_port: "\\x01\\xfe"', ""]
)
def test_a_port_that_exists_the_cpu_port_and_none(controller: Any, watch: str) -> None:
    controller.do("INSERT", MEMBER, group(watch))


def test_one_shot(controller: Any, existing: dict[int, QosPort]) -> None:
    missing = ONE_SHOT.replace('"\\x02"', '"\\x07"')
    (status,) = controller.write(controller.program.update("INSERT", missing))
    assert status.code == Code.INVALID_ARGUMENT
    assert "watch_port: this switch has no port 7" in status.message
    existing[7] = SchedulerInC(10**9)
    controller.do("INSERT", missing)


def test_a_port_that_goes_afterwards(controller: Any, existing: dict[int, QosPort]) -> None:
    """Nothing that was written is lost, and batches and pipelines carry it on."""
    controller.do("INSERT", MEMBER, group('watch_port: "\\x03"'))
    controller.do("INSERT", f"table_entry {{ {KEY} action {{ action_profile_group_id: 1 }} }}")
    gone = existing.pop(3)
    controller.device.set_port_up(3, False)
    written = controller.read("table_entry { }", "action_profile_group { }")
    assert ports(controller) == set()

    update = controller.program.update
    batch = [
        update("DELETE", f"table_entry {{ {KEY} }}"),
        update("DELETE", group("")),
        update("DELETE", group("")),
    ]
    statuses = controller.write(*batch, atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
    assert [status.code for status in statuses] == [Code.ABORTED, Code.ABORTED, Code.NOT_FOUND]
    controller.set_pipeline("RECONCILE_AND_COMMIT", controller.program.config())
    assert controller.read("table_entry { }", "action_profile_group { }") == written

    (status,) = controller.write(update("MODIFY", group('watch_port: "\\x03"')))
    assert status.code == Code.INVALID_ARGUMENT
    existing[3] = gone
    controller.device.set_port_up(3, True)
    assert ports(controller) == {2}
    controller.do("MODIFY", group('watch_port: "\\x03"'))
