"""Services on one etcd, of which one takes over when the other is stopped or killed."""

from __future__ import annotations

import signal
import threading
import time

import grpc
import pytest
from finsy.proto import p4r

from echelon.controller.client import Client, ClientError
from plugins.etcd.tests.etcd_process import etcd_process
from tests.echelon.service.conftest import Build
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import LINE, PAIR, PATIENCE_S, ring, settle, until
from tests.echelon.service.test_recovery import sorted_bytes, write
from tests.needs import needs

pytestmark = needs("etcd")


def test_a_standby_elsewhere_takes_over_within_the_lease(build: Build) -> None:
    """The leader is not killed but stopped, so that it comes back and does not know that its time
    has passed.
    """
    lab = build(PAIR)
    with etcd_process(lab.directory / "etcd") as etcd:
        common = {"store": f"{etcd.url}/lab", "lease": "2 s"}
        first = lab.daemon("first", **common)
        with lab.client(first) as client:
            client.register_job(ring("a", ["h1", "h3"]))
            settle(client)
            old_term = client.status().term
        second = lab.daemon("second", **common)
        with Client(second.wait_listening(), timeout_s=PATIENCE_S) as other:
            until(lambda: other.status().leader is not None, "the standby does not know its leader")
            first.signal(signal.SIGSTOP)
            began = time.monotonic()
            # Somebody asks the stopped controller; it will find the request when it comes back.
            late = Late(first.wait_listening())
            second.wait_event("leading")
            print(
                f"took over {time.monotonic() - began:.2f} s after the leader was stopped;"
                " lease 2 s"
            )
            other.register_job(ring("b", ["h2", "h4"]))
            settle(other)
            held = {name: sorted_bytes(switch.entries()) for name, switch in lab.switches.items()}
            first.signal(signal.SIGCONT)
            first.wait_event("no longer leads")
            assert late.outcome() in (None, 503)
            assert old_term is not None
            with pytest.raises(grpc.RpcError) as refused:
                write(
                    lab.switches["leaf1"],
                    old_term,
                    p4r.Update.DELETE,
                    lab.switches["leaf1"].entries()[:1],
                )
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            settle(other)
            assert {job.name for job in other.jobs()} == {"a", "b"}
            assert {
                name: sorted_bytes(switch.entries()) for name, switch in lab.switches.items()
            } == held
            assert_exactly(lab, other)
            assert other.switch("leaf1").sessions == 1, "the old leader did not get in between"


class Late:
    """A client that registers a job with a controller that does not answer at the moment."""

    def __init__(self, url: str) -> None:
        self._status: int | None = None
        self._url = url
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        with Client(self._url, timeout_s=PATIENCE_S) as client:
            try:
                client.register_job(ring("late", ["h1", "h2"]))
            except ClientError as error:
                self._status = error.status
            else:
                self._status = 200

    def outcome(self) -> int | None:
        self._thread.join(PATIENCE_S)
        return self._status


@pytest.mark.long
def test_kill_the_leader_and_nothing_is_lost_in_etcd(build: Build) -> None:
    lab = build(LINE)
    with etcd_process(lab.directory / "etcd") as etcd:
        common = {"store": f"{etcd.url}/lab", "lease": "2 s"}
        daemons = [lab.daemon("first", **common)]
        with lab.client(daemons[0]) as client:
            settle(client)
        for number in range(3):
            daemons.append(lab.daemon(f"next{number}", **common))
            daemons[-1].wait_listening()
            with Client(daemons[-2].wait_listening(), timeout_s=PATIENCE_S) as client:
                client.register_job(ring(f"j{number}", ["h1", "h2"]))
            daemons[-2].kill()
            with lab.client(daemons[-1]) as client:
                settle(client)
                assert {job.name for job in client.jobs()} == {f"j{n}" for n in range(number + 1)}
                assert_exactly(lab, client)
