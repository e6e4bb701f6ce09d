"""One job's emulated workers in real time, or the traffic of a scenario that no job claims."""

from __future__ import annotations

from collections.abc import Callable

from echelon.model.errors import RunError
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.hosts.loop import RealTimeLoop


class OwnClock:
    """The clock of one emulation, which can be stopped.

    `failed(reason)` is called when the emulation breaks; its clock is stopped then.
    """

    def __init__(self, loop: RealTimeLoop, failed: Callable[[str], None]) -> None:
        self.stopped = False
        """Set it to make the emulation fall silent: no more calls are made."""
        self._loop = loop
        self._failed = failed

    @property
    def now_ns(self) -> int:
        return self._loop.now_ns

    def call_at(
        self,
        time_ns: int,
        callback: Callable[..., object],
        /,
        *args: object,
    ) -> None:
        """Call at that time, unless the clock is stopped by then."""
        self._loop.call_at(time_ns, self._call, callback, *args)

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        if self.stopped:
            return
        try:
            callback(*args)
        except RunError as error:
            self.stopped = True
            self._failed(str(error))


class LivingEmulator(TrainingEmulator):
    """An emulation that lasts, and forgets the iterations that are over."""

    def _finish_iteration(self, job: str, iteration: int) -> None:
        del self._executions[job].record.iterations[:-1]
        super()._finish_iteration(job, iteration)
