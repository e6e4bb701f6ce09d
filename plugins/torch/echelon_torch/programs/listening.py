"""The run's end of the sockets of ranks."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from echelon.model.errors import RunError
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_torch.programs.iterations import ProgramIterations
from echelon_torch.programs.messages import Hello, RankLines, RankReady, RankStep, begin


class _Rank:
    """A connection to one rank."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.lines = RankLines()
        self.hello: Hello | None = None


class RankListener:
    """A listener at `path` for the ranks of all programs.

    It runs in `loop`, which raises `RunError`.

    `on_ready` is called once, when all ranks wait to begin; `on_step` whenever something has been
    told after that.
    """

    def __init__(
        self,
        loop: RealTimeLoop,
        path: Path,
        iterations: ProgramIterations,
        on_ready: Callable[[], None],
        on_step: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._iterations = iterations
        self._on_ready = on_ready
        self._on_step = on_step
        self._ranks: list[_Rank] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen()
        loop.on_readable(self._socket.fileno(), self._on_connection)

    def begin(self, origin_ns: int) -> None:
        """Tell all ranks when their jobs begin. `origin_ns` is time 0 of the run."""
        times = self._iterations.begin(origin_ns)
        for rank in self._ranks:
            if rank.hello is not None:
                with suppress(OSError):  # the run notices that its program has ended
                    rank.socket.sendall(begin(times[rank.hello.job]))

    def close(self) -> None:
        for rank in self._ranks:
            rank.socket.close()
        self._socket.close()

    def _on_connection(self) -> None:
        rank = _Rank(self._socket.accept()[0])
        self._ranks.append(rank)
        self._loop.on_readable(rank.socket.fileno(), lambda: self._on_readable(rank))

    def _on_readable(self, rank: _Rank) -> None:
        try:
            data = rank.socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except ConnectionError:
            data = b""
        if not data:
            # Its program has ended, or has destroyed its process group. The run watches programs by
            # their processes.
            self._loop.on_readable(rank.socket.fileno(), None)
            return
        try:
            for message in rank.lines.feed(data):
                self._note(rank, message)
        except ValueError as error:
            raise RunError(
                f"a program tells the run what it does not understand: {error}"
            ) from None

    def _note(self, rank: _Rank, message: Hello | RankReady | RankStep) -> None:
        match message:
            case Hello():
                self._iterations.note_rank(message)
                rank.hello = message
            case RankReady() if rank.hello is not None:
                self._iterations.note_ready(rank.hello.job, rank.hello.rank)
                if not self._iterations.missing:
                    self._on_ready()
            case RankStep() if rank.hello is not None:
                self._iterations.note_step(rank.hello.job, rank.hello.rank, message)
                self._on_step()
            case _:
                raise ValueError("a rank that has not said who it is")
