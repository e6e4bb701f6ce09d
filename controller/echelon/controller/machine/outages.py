"""Switches and ports that do not answer or serve, with the links that are down for it.

What fails for the grace time is down. It is up again when it has not failed for the same time, and
for twice as long with each outage that comes soon after another: however a switch flaps, plans are
made again ever more rarely.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from echelon.controller.machine.effects import SetAlarm
from echelon.controller.machine.events import Alarm
from echelon.controller.machine.facts import LinksDown
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.wiring import LinkEnds, ends_of
from echelon.model.fabric.model import Fabric

START_S = 10.0
"""The least time after which a switch is down that has never answered.

A restart of the controller moves no job.
"""
LONGEST_S = 300.0
"""The longest time for which what was down must not fail before it is up."""
QUIET_S = 1800.0
"""Time without an outage after which the next one counts as the first."""

Subject = tuple[str, int | None]
"""A switch, or one of its ports."""


@dataclass(slots=True)
class _Watch:
    """The state of a switch or a port."""

    fails: bool = False
    """Whether it fails now: it is silent, or refused."""
    silent: bool = False
    """Whether it does not answer, or is down."""
    refused: str | None = None
    """The reason why the switch does not serve it as the plan wants; None: it does."""
    cause: str | None = None
    """The refusal for which it failed last; None: it was silent."""
    is_down: bool = False
    alarm: int = 0
    """The alarm with which it is to be down, or up again."""
    outages: int = 0
    """Number of outages since the last quiet time."""
    down_s: float = 0.0
    """The time at which the last one began."""

    @property
    def refusal(self) -> str | None:
        """The reason why it fails although it answers; None: it does not answer, or serves."""
        return None if self.silent else self.refused


class Outages:
    """The outages of one fabric."""

    def __init__(self, fabric: Fabric, grace_s: float) -> None:
        self.fabric = fabric
        self._links: Mapping[LinkEnds, str] | None = None
        """`links`; None: something has happened since they were looked for."""
        self._ports = fabric.ports
        """The ports that are watched, with or without a link."""
        self._grace_s = grace_s
        self._watches: dict[Subject, _Watch] = {
            (name, None): _Watch(fails=True, silent=True) for name in fabric.switches
        }
        for name in fabric.switches:
            self._watches |= {(name, port): _Watch() for port in self._ports[name]}
        self._alarms = 0
        """The number of the last alarm."""
        self._waits: dict[int, Subject] = {}
        """The subject of each alarm."""

    @property
    def links(self) -> Mapping[LinkEnds, str]:
        """The links that are down, each with the reason.

        They are looked for when asked for, because many switches may fail together.
        """
        if self._links is None:
            links: dict[LinkEnds, str] = {}
            for cause in self._causes(self._watches):
                reason = self._reason(cause)
                links.update(dict.fromkeys(self._links_of(cause), reason))
            self._links = links
        return self._links

    def start(self) -> list[SetAlarm]:
        """Begin to wait for the switches that have not answered yet."""
        waited_s = max(START_S, self._grace_s)
        failing = [subject for subject, watch in self._watches.items() if watch.fails]
        return [self._wait(subject, waited_s) for subject in failing]

    def see_switch(self, switch: str, answers: bool) -> list[SetAlarm]:
        """Note whether a switch answers."""
        watch = self._watches[switch, None]
        watch.silent = not answers
        return self._see((switch, None), watch)

    def see_ports(self, switch: str, down: frozenset[int]) -> list[SetAlarm]:
        """Note which ports of a switch are down."""
        alarms = []
        for port in sorted(self._ports[switch]):
            watch = self._watches[switch, port]
            watch.silent = port in down
            alarms += self._see((switch, port), watch)
        return alarms

    def see_refused(self, switch: str, reason: str | None) -> list[SetAlarm]:
        """Note why a switch refuses its whole intent; None: it does not."""
        watch = self._watches[switch, None]
        watch.refused = reason
        return self._see((switch, None), watch)

    def see_unserved(self, switch: str, ports: Mapping[int, str]) -> list[SetAlarm]:
        """Note which ports a switch does not serve as the plan wants, and why."""
        alarms = []
        for port in sorted(self._ports[switch]):
            watch = self._watches[switch, port]
            watch.refused = ports.get(port)
            alarms += self._see((switch, port), watch)
        return alarms

    def ring(self, number: int, now: Instant) -> LinksDown | None:
        """Return what is down, or up again, by an alarm."""
        subject = self._waits.pop(number, None)
        if subject is None:
            return None
        watch = self._watches[subject]
        if watch.alarm != number:
            return None
        watch.is_down = watch.fails
        watch.alarm = 0
        if watch.is_down:
            if now.s - watch.down_s >= QUIET_S:
                watch.outages = 0
            watch.outages += 1
            watch.down_s = now.s

        self._links = None
        switch, port = subject
        links = set[LinkEnds]()
        ports = [(switch, port) for port in self._ports[switch]]
        for cause in self._causes([(switch, None), *ports]):
            links.update(self._links_of(cause))
        return LinksDown(switch, port, watch.is_down, len(links), watch.refusal)

    def rewire(self, fabric: Fabric) -> None:
        """Take up a fabric with other links."""
        self.fabric = fabric
        self._links = None

    def problems(self, avoided: Collection[LinkEnds], *, reroutes: bool) -> Mapping[LinkEnds, str]:
        """Return the problem of a job whose path leads over a link that is down, by link.

        Args:
            avoided: links that move.
            reroutes: whether plans avoid links that are down.
        """
        if reroutes:
            hint = "there is no other path"
        else:
            hint = "`echelon link drain` leads around it"
        problems = {}
        for (a, b), reason in self.links.items():
            problems[a, b] = f"link {a} - {b} is down: {reason}; {hint}"
        for a, b in avoided:
            problems[a, b] = (
                f"link {a} - {b} moves, and there is no other path until the new links stand"
            )
        return problems

    def is_down(self, switch: str) -> bool:
        """Return whether a switch has not answered, or refused its intent, for the grace time."""
        return self._watches[switch, None].is_down

    def _causes(self, subjects: Iterable[Subject]) -> list[Subject]:
        """Return those that are down: first ports, then switches.

        A link with several causes shows the last one, so that a switch hides its ports.
        """
        down = [subject for subject in subjects if self._watches[subject].is_down]
        ports = [(switch, port) for switch, port in down if port is not None]
        switches = [(switch, port) for switch, port in down if port is None]
        return [*ports, *switches]

    def _see(self, subject: Subject, watch: _Watch) -> list[SetAlarm]:
        fails = watch.silent or watch.refused is not None
        if fails and watch.cause != watch.refusal:
            watch.cause = watch.refusal
            # The links that it takes show the new reason.
            self._links = None
        if fails == watch.fails:
            return []
        watch.fails = fails
        # An alarm that is under way was for what is no longer so: `ring` ignores it.
        watch.alarm = 0
        if fails == watch.is_down:
            return []
        delay_s = self._grace_s
        if not fails:
            doublings = min(watch.outages - 1, 30)
            delay_s = min(LONGEST_S, self._grace_s * 2.0**doublings)
        return [self._wait(subject, delay_s)]

    def _wait(self, subject: Subject, delay_s: float) -> SetAlarm:
        self._alarms += 1
        self._waits[self._alarms] = subject
        self._watches[subject].alarm = self._alarms
        return SetAlarm(Alarm("outage", self._alarms, subject[0]), delay_s)

    def _links_of(self, subject: Subject) -> Iterator[LinkEnds]:
        switch, port = subject
        for linked_port, neighbour in self.fabric.ports[switch].items():
            if port is None or port == linked_port:
                yield ends_of(switch, neighbour)

    def _reason(self, subject: Subject) -> str:
        switch, port = subject
        refusal = self._watches[subject].cause
        if port is None:
            if refusal is None:
                return f"switch {switch} does not answer"
            return f"switch {switch} refuses its intent"
        if refusal is None:
            return f"port {port} of switch {switch} is down"
        return f"port {port} of switch {switch} is not served: {refusal}"
