"""The base of all tests of the data plane: a switch that forwards between four hosts."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from ptf.base_tests import BaseTest  # type: ignore[import-untyped]
from ptf.testutils import (  # type: ignore[import-untyped]
    dp_poll,
    send_packet,
    test_param_get,
    verify_packet,
)
from scapy.packet import Packet

import ptf
from echelon.model.p4program import P4Program, constants, program
from echelon.switches.lowering.intent import TableEntry
from echelon.switches.targets import DEFAULT_TARGET, find_target
from echelon.switches.targets.rates import FrameRate, QueueRates
from echelon_ptf import entries, frames
from echelon_ptf.control import TIMEOUT_S, Controller, FlowEvent, TargetError, poll
from echelon_ptf.entries import Deadline, Rank
from echelon_ptf.rates import rates_of
from echelon_ptf.tofino import TnaForm, TofinoController

PORTS = (1, 2, 3, 4)
"""Host n is at port n. Tests send at 1 and look at 2 unless they say otherwise."""
_NOBODY, _NOWHERE = 99, 0
"""An unknown host at port 0, to which v1model sends packets without a chosen port."""
SENDER, RECEIVER = 1, 2
ASIDE = 4
"""The port of packets that a test does not look at. It is never slowed."""

BEST_EFFORT_QUEUE = 0
CONTROL_QUEUE = 7
STALE_QUEUE = 6
"""The tests tell stale packets from best effort; a deployment need not."""

T = TypeVar("T", bound="EchelonTest")

_NUMBERS = constants()
DROPPED = "EchelonIngress.dropped"
START, FINISH = _NUMBERS["EVENT_START"], _NUMBERS["EVENT_FINISH"]

# Identifiers that no test of this run had before: not every target lets P4Runtime clear registers,
# so each test takes its own.
_jobs = itertools.count(1)
_flows = itertools.count(1)
_echelonflows = itertools.count(1)
_profiles = itertools.count(1)
_connections = itertools.count(1)
_groups = itertools.count(1)


@cache
def _switch() -> Controller | TofinoController | TargetError:
    """Return the connection that all tests share, with their entries, or why there is none."""
    try:
        return _connect()
    except TargetError as error:
        return error


def _connect() -> Controller | TofinoController:
    directory = test_param_get("program")
    installed = program(architecture(), None if directory is None else Path(directory))
    controller = _CONTROLLERS[architecture()](installed)
    classes = {
        _NUMBERS["CLASS_BEST_EFFORT"]: BEST_EFFORT_QUEUE,
        _NUMBERS["CLASS_CONTROL"]: CONTROL_QUEUE,
        _NUMBERS["CLASS_STALE"]: STALE_QUEUE,
    }
    controller.insert(
        *(entries.queue_dscp(queue, queue << 3) for queue in range(_NUMBERS["QUEUES"])),
        *(entries.class_queue(traffic_class, queue) for traffic_class, queue in classes.items()),
        *(entries.route(frames.address(host), host, host) for host in PORTS),
        entries.route(frames.address(_NOBODY), _NOWHERE, _NOBODY),
    )
    return controller


def architecture() -> str:
    """Return the P4 architecture of the target."""
    name = test_param_get("switch").get("target", DEFAULT_TARGET)
    return find_target(name, "--test-params", "switch.target").architecture


def _over_p4runtime(installed: P4Program) -> Controller:
    controller = Controller(
        test_param_get("switch")["address"], test_param_get("device_id"), installed
    )
    controller.connect(installed.binary.read_bytes())
    return controller


def _over_bf_runtime(installed: P4Program) -> TofinoController:
    entries.take_form(TnaForm())
    controller = TofinoController(
        test_param_get("switch")["address"], (_NOWHERE, *PORTS), installed
    )
    # A test that says nothing of hold times sends its packets one by one: none waits when the next
    # one comes.
    holds = PORTS if controller.has_table("promotion_hold") else ()
    controller.connect(*(entries.promotion_hold(port, 0, 0) for port in holds))
    return controller


_CONTROLLERS: Mapping[str, Callable[[P4Program], Controller | TofinoController]] = {
    "v1model": _over_p4runtime,
    "tna": _over_bf_runtime,
}


@cache
def _rates() -> QueueRates:
    return rates_of(test_param_get("switch"))


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow that the switch knows by its shim."""

    job: int
    number: int
    flow: int
    """The flow's identifier in digests."""
    entry: TableEntry
    """Its path and ranking, which counts its packets."""

    def packet(self, epoch: int = 1, **fields: Any) -> Packet:
        """Return a packet of the flow, made by `frames.shim` with these fields."""
        return frames.shim(self.job, self.number, epoch, **fields)


def skipped_on(**reasons: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of a test that fails on the architectures named, each with the reason."""

    def decorate(test: type[T]) -> type[T]:
        test.differs = reasons
        return test

    return decorate


class EchelonTest(BaseTest):  # type: ignore[misc]
    """A test with a `switch` to write to. After the test, it undoes what the test wrote."""

    differs: Mapping[str, str] = MappingProxyType({})
    """Why the test does not hold on an architecture; it is skipped there."""

    def run(self, result: Any = None) -> None:
        """Run the test, and note its result and duration where the runner wants them."""
        lists = {"fail": result.failures, "error": result.errors, "skip": result.skipped}
        before = {name: len(found) for name, found in lists.items()}
        start = time.monotonic()
        super().run(result)
        outcome = next((name for name, found in lists.items() if len(found) > before[name]), "ok")
        record = {"test": str(self), "result": outcome, "seconds": time.monotonic() - start}
        if outcome != "ok":
            record["why"] = lists[outcome][-1][1]
        path = test_param_get("results")
        if path is not None:
            with Path(path).open("a") as file:
                print(json.dumps(record), file=file)

    def setUp(self) -> None:
        super().setUp()
        if architecture() in self.differs:
            self.skipTest(self.differs[architecture()])
        self.dataplane = ptf.dataplane_instance  # type: ignore[attr-defined]
        switch = _switch()
        if isinstance(switch, TargetError):
            raise switch
        self.switch = switch
        self.rates = _rates()
        self.dataplane.flush()
        # A digest of the test before may still be on its way.
        self.switch.forget_events(before_flow=self.new_flow())

    # -- on the switch, for the time of the test ---------------------------------------------------

    def install(self, *wanted: TableEntry) -> None:
        self.switch.insert(*wanted)
        self.addCleanup(self.switch.delete, *wanted)

    def profile(self, earliest: int, below: Mapping[int, int]) -> int:
        """Install a new profile (`entries.profile`), and return its number."""
        number = self.new_profile()
        self.install(*entries.profile(number, earliest, below))
        return number

    def new_profile(self) -> int:
        return next(_profiles)

    def new_echelonflow(self) -> int:
        return next(_echelonflows)

    def new_connection(self) -> int:
        return next(_connections)

    def new_flow(self) -> int:
        return next(_flows)

    def new_group(self) -> int:
        return next(_groups)

    def new_job(self) -> int:
        return next(_jobs)

    def shim_flow(self, rank: Rank, *, job: int | None = None, port: int = RECEIVER) -> Flow:
        """Install a new flow to the host at `port`, of a new job unless `job` is given."""
        job = self.new_job() if job is None else job
        flow = self.new_flow()
        entry = entries.flow(flow, rank, port, port)
        self.install(entry, entries.shim_flow(job, flow, flow))
        return Flow(job, flow, flow, entry)

    def ranked(self, rank: Rank) -> int:
        """Install a new flow that nothing recognises yet, and return its number."""
        number = self.new_flow()
        self.install(entries.flow(number, rank, RECEIVER, RECEIVER))
        return number

    def rerank(self, flow: Flow, rank: Rank, port: int = RECEIVER) -> None:
        """Rank `flow` by `rank` from its next packet on; packets that were sent keep their rank."""
        self.settle()
        self.switch.modify(entries.flow(flow.flow, rank, port, port))

    def deadline_flow(
        self,
        profile: int,
        offset_us: int = 0,
        *,
        echelonflow: int | None = None,
        job: int | None = None,
    ) -> Flow:
        """Install a flow ranked by deadline, of a new EchelonFlow unless `echelonflow` is given."""
        echelonflow = self.new_echelonflow() if echelonflow is None else echelonflow
        return self.shim_flow(Deadline(echelonflow, profile, offset_us), job=job)

    # -- packets -----------------------------------------------------------------------------------

    def send(self, frame: Packet | bytes, port: int = SENDER) -> None:
        send_packet(self, port, frame)

    def receive(self, port: int = RECEIVER) -> bytes:
        """Return the oldest packet that left by `port` and was not taken yet."""
        found = dp_poll(self, port_number=port, timeout=TIMEOUT_S)
        if not isinstance(found, self.dataplane.PollSuccess):
            self.fail(f"no packet left by port {port} for {TIMEOUT_S:g} s")
        return bytes(found.packet)

    def carry(self, frame: Packet | bytes, port: int = RECEIVER) -> bytes:
        """Send `frame` as the only packet on its way, and return what leaves by `port`."""
        self.send(frame)
        return self.receive(port)

    def queue_of(self, frame: Packet | bytes, port: int = RECEIVER) -> int:
        """Send `frame` as the only packet on its way, and return the queue that it goes through."""
        return frames.queue_of(self.carry(frame, port))

    def expect(self, frame: Packet, expected: Packet, port: int = RECEIVER) -> None:
        """Send `frame`, and check that `expected` leaves by `port`, and nothing elsewhere."""
        self.send(frame)
        verify_packet(self, expected, port, timeout=TIMEOUT_S)
        self.expect_silence()

    def expect_silence(self) -> None:
        """Check that all packets that left were taken.

        It need not wait: it sends a packet to every port, and packets that were on their way arrive
        before that one.
        """
        for host in PORTS:
            self._mark(host, host)
        self._mark(_NOBODY, _NOWHERE)

    def settle(self) -> None:
        """Wait until all packets sent are past ingress, out of the reach of later writes."""
        self._mark(ASIDE, ASIDE)

    def _mark(self, host: int, port: int) -> None:
        marker = frames.udp(9, 9, 64, src=5, dst=host)
        self.send(marker)
        found = self.receive(port)
        expected = bytes(frames.as_forwarded(marker, dst=host, queue=BEST_EFFORT_QUEUE))
        self.assertEqual(found, expected, f"left by port {port}, unexpected: {found.hex()}")

    def expect_dropped(self, frame: Packet | bytes, reason: int, port: int = SENDER) -> None:
        """Send `frame`, which must be dropped and counted under `reason` (DROP_* of constants.h)
        alone.
        """
        reasons = range(_NUMBERS["DROP_REASONS"])
        before = [self.switch.counter(DROPPED, index) for index in reasons]
        self.send(frame, port)
        expected = [count.packets + (index == reason) for index, count in enumerate(before)]
        self.await_equal(
            expected, lambda: [self.switch.counter(DROPPED, index).packets for index in reasons]
        )
        after = self.switch.counter(DROPPED, reason)
        self.assertEqual(after.bytes - before[reason].bytes, len(frame), "bytes counted")
        self.expect_silence()

    def await_equal(self, expected: object, observed: Callable[[], object]) -> None:
        """Wait for `observed` to become `expected`, since packets may still be on their way."""
        if not poll(lambda: observed() == expected):
            self.assertEqual(expected, observed())

    def assert_us(self, found: int, expected: int) -> None:
        """Check a difference of times that the switch told, to what its clock can tell."""
        self.assertLessEqual(
            abs(found - expected), self.switch.time_error_us, f"{found} us, not {expected}"
        )

    # -- digests -----------------------------------------------------------------------------------

    def next_event(self, flow: Flow | int) -> FlowEvent:
        """Return the oldest digest that was not taken yet; it must be of `flow`."""
        found = self.switch.next_event()
        self.assertEqual(
            found.flow,
            flow.flow if isinstance(flow, Flow) else flow,
            f"digest of another flow: {found}",
        )
        return found

    def start(self, flow: Flow, epoch: int = 1) -> FlowEvent:
        """Send the first packet of `flow` in an iteration, see it leave, and return its digest."""
        self.carry(flow.packet(epoch))
        event = self.next_event(flow)
        self.assertEqual((event.event, event.epoch), (START, epoch))
        return event

    def expect_no_event(self) -> None:
        """Check that all digests were taken: the digest of a new flow must come next."""
        self.start(self.shim_flow(entries.Fixed(0)))

    # -- queues ------------------------------------------------------------------------------------

    def slow_queue(
        self, queue: int, packets_per_s: int, frame_bytes: int, port: int = RECEIVER
    ) -> None:
        """Slow a queue down for the rest of the test, or skip it where the target cannot."""
        if not self.rates.can_limit_queues:
            self.skipTest(self.rates.reason)
        self.rates.limit_queue(port, queue, FrameRate(packets_per_s, frame_bytes))
        self.addCleanup(self.free_queue, queue, port)

    def slow_port(self, packets_per_s: int, frame_bytes: int, port: int = RECEIVER) -> None:
        """Slow a port down for the rest of the test; skip it where the target cannot."""
        if not self.rates.can_limit_ports:
            self.skipTest(self.rates.reason)
        self.rates.limit_port(port, FrameRate(packets_per_s, frame_bytes))
        self.addCleanup(self.rates.limit_port, port, FrameRate())

    def free_queue(self, queue: int, port: int = RECEIVER) -> None:
        self.rates.limit_queue(port, queue, FrameRate())


def receive_all(test: EchelonTest, count: int, port: int = RECEIVER) -> Iterator[bytes]:
    """Yield the next `count` packets of a port, in the order in which they left."""
    for _ in range(count):
        yield test.receive(port)
