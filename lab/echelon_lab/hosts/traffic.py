"""Cross traffic of a run on real hosts.

It is `echelon traffic` in the namespaces of the hosts that send and receive.

The length of a run is not known in advance. Schedules are made for ten times what the jobs would
take alone. A run that outlasts them fails, because its last iterations would have seen no traffic.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Self

from echelon.model.errors import RunError
from echelon.switches.processes import DIES_WITH_CALLER, last_words, start
from echelon_lab.hosts.backends.base import HostFabric
from echelon_lab.scenarios.results import alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.outcome import FlowOutcome, read_outcomes
from echelon_lab.traffic.schedule import Schedule, write_schedule

# A run may take so many times as long as its slowest job alone.
_ALLOWANCE = 10
_LEAST_S = 30.0
_SENDER_START_S = 2.5
_READ_S_PER_FLOW = 20e-6
_OPEN_S = 20.0
_END_S = 20.0
_POLL_S = 0.01
_TRAFFIC = (sys.executable, "-Pm", "echelon", "traffic")
_RECEIVES = b"receiving at "


@dataclass(frozen=True, slots=True)
class _Sender:
    source: str
    process: subprocess.Popen[bytes]
    outcomes: Path
    log: Path


class HostTraffic:
    """The cross traffic of `scenario` on the hosts of `hosts`.

    Their addresses are in `fabric_file`.

    A context manager: its processes do not outlive it. Raises `RunError` for traffic that cannot be
    sent.
    """

    def __init__(
        self,
        scenario: Scenario,
        hosts: HostFabric,
        fabric_file: Path,
        directory: Path,
    ) -> None:
        self._scenario = scenario
        self._hosts = hosts
        self._fabric_file = fabric_file
        self._directory = directory
        self._receivers: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        self._senders: list[_Sender] = []
        self._schedules: dict[str, Path] = {}
        self._flows = 0
        self._limit_s = 0.0

    def __enter__(self) -> Self:
        sources = self._scenario.traffic
        if not sources:
            return self
        # Once for each host, in an order that does not change from run to run.
        for host in dict.fromkeys(dst for source in sources for _, dst in source.pairs):
            self._start_receiver(host)
        for host in dict.fromkeys(
            src for source in sources if source.ecn for src, _ in source.pairs
        ):
            self._ask_for_ecn(host)
        # Senders read their flows from files, which have to end after the run does.
        alone_s = max(alone_iterations_s(self._scenario).values())
        self._limit_s = _LEAST_S + _ALLOWANCE * self._scenario.iterations * float(alone_s)
        for source in sources:
            self._write_schedule(source)
        return self

    def __exit__(self, *_: object) -> None:
        processes = [sender.process for sender in self._senders] + [
            process for process, _ in self._receivers.values()
        ]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()

    @property
    def lead_s(self) -> float:
        """Return the seconds that senders need before the run's time 0."""
        if self._scenario.traffic:
            return _SENDER_START_S + self._flows * _READ_S_PER_FLOW
        return 0.0

    def wait_ready(self) -> None:
        """Wait until all receivers listen. Raises `RunError`."""
        give_up_at = time.monotonic() + _OPEN_S
        for host, (process, log) in self._receivers.items():
            while _RECEIVES not in log.read_bytes():
                if process.poll() is not None or time.monotonic() > give_up_at:
                    raise RunError(
                        f"host {host}: it cannot receive cross traffic: {last_words(log)}"
                    )
                time.sleep(_POLL_S)

    def start(self, origin_ns: int) -> None:
        """Start the senders. `origin_ns` of CLOCK_MONOTONIC is time 0 of the flows."""
        for source in self._scenario.traffic:
            for host in dict.fromkeys(src for src, _ in source.pairs):
                self._start_sender(source, host, origin_ns)

    def stop(self, end_s: float) -> Mapping[str, Sequence[FlowOutcome]]:
        """End the traffic of a run of `end_s` seconds.

        Return the outcomes of the flows, by source, in order of their starts.

        Raises `RunError` for a sender that broke, and for a run that took longer than there was
        traffic.
        """
        # All first, so that none sends on while another one is awaited.
        for sender in self._senders:
            sender.process.send_signal(signal.SIGTERM)
        outcomes: dict[str, list[FlowOutcome]] = {
            source.name: [] for source in self._scenario.traffic
        }
        for sender in self._senders:
            outcomes[sender.source] += self._outcomes_of(sender)
        for source in self._scenario.traffic:
            if not isinstance(source.flows, Schedule) and end_s > self._limit_s:
                raise RunError(
                    f"traffic {source.name}: the run took {end_s:.0f} s, but its flows are for"
                    f" {self._limit_s:.0f} s (lower its load)"
                )
            outcomes[source.name].sort(key=lambda outcome: outcome.started_s)
        return outcomes

    def _start_receiver(self, host: str) -> None:
        log = self._directory / f"receiver-{host}.log"
        address = self._scenario.fabric.hosts[host].ipv4
        command = [*_TRAFFIC, "receive", "--listen", address, "--processes", "1"]
        self._receivers[host] = self._spawn(host, command, log), log

    def _start_sender(
        self,
        source: TrafficSource,
        host: str,
        origin_ns: int,
    ) -> None:
        name = f"sender-{source.name}-{host}"
        log = self._directory / f"{name}.log"
        outcomes = self._directory / f"{name}.csv"
        command = [
            *(*_TRAFFIC, "send", str(self._schedules[source.name]), "--from", host),
            *("--fabric", str(self._fabric_file), "--begin", f"{origin_ns / 1e9:.9f}"),
            *("--processes", "1", "--out", str(outcomes), "--json"),
            *(["--ecn"] if source.ecn else []),
        ]
        self._senders.append(_Sender(source.name, self._spawn(host, command, log), outcomes, log))

    def _spawn(
        self,
        host: str,
        command: Sequence[str],
        log: Path,
    ) -> subprocess.Popen[bytes]:
        return start([*self._hosts.in_host(host), *DIES_WITH_CALLER, *command], log)

    def _ask_for_ecn(self, host: str) -> None:
        """Make all TCP connections of the host ask for ECN.

        The ends that accept them agree by default.
        """
        setting = "echo 1 > /proc/sys/net/ipv4/tcp_ecn"
        done = subprocess.run(
            [*self._hosts.in_host(host), "sh", "-c", setting],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RunError(f"host {host}: ECN cannot be enabled: {' '.join(done.stderr.split())}")

    def _write_schedule(self, source: TrafficSource) -> None:
        flows = source.stream(self._scenario.seed)
        limit_us = round(self._limit_s * 1e6)
        if isinstance(source.flows, Schedule):
            schedule = source.flows
        else:
            schedule = Schedule(
                tuple(takewhile(lambda flow: flow.start_us < limit_us, flows)), limit_us, {}
            )
        self._flows += len(schedule.flows)
        path = self._schedules[source.name] = self._directory / f"traffic-{source.name}.csv"
        write_schedule(schedule, path)

    def _outcomes_of(self, sender: _Sender) -> Sequence[FlowOutcome]:
        try:
            sender.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise RunError(
                f"traffic {sender.source}: its sender does not exit: {last_words(sender.log)}"
            ) from None
        if not sender.outcomes.exists():
            status = sender.process.returncode
            raise RunError(
                f"traffic {sender.source}: its sender ended with status {status}:"
                f" {last_words(sender.log)}"
            )
        return read_outcomes(sender.outcomes)
