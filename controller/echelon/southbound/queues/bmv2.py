"""The queues of a BMv2: HTB trees on the interfaces behind its egress ports, which hold what its own would let pass."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from echelon.lowering.intent import QueueSetting
from echelon.southbound.errors import SouthboundError
from echelon.southbound.queues.htb import QUEUES, Port, Root, Tree, build, change, parse, settings_of, show, tree_of
from echelon.southbound.queues.tc import Tc, TcError
from echelon.southbound.queues.thrift import ThriftError, open_queues

T = TypeVar("T")

_SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")
_AT_ONCE = 4
"""Processes of one switch."""


@dataclass(frozen=True, slots=True)
class ShapedPort:
    """An egress port, and the interface that carries its tree."""

    number: int
    interface: str
    port: Port


class Bmv2Queues:
    """A `QueueDriver`. Needs CAP_NET_ADMIN, and for a namespace other than its own CAP_SYS_ADMIN.

    `thrift` is (host, port) of the switch's Thrift server; without it the switch's own queues are left alone.
    """

    def __init__(
        self,
        switch: str,
        ports: Sequence[ShapedPort],
        namespace: str | None = None,
        thrift: tuple[str, int] | None = None,
    ) -> None:
        self._switch = switch
        self._ports = {port.number: port for port in ports}
        # A call that was cancelled may still be at work, in its thread, when the next one comes.
        self._locks = {number: threading.Lock() for number in self._ports}
        self._tc = Tc(namespace)
        self._thrift = thrift
        self._asked: dict[int, tuple[QueueSetting, ...]] = {}
        """By port, by queue: what the tree was made from, which the tree alone does not tell exactly."""

    async def open(self) -> None:
        with self._errors():
            self._check_depths()
            if self._thrift is not None:
                # BMv2 does not say how deep its queues are, and forgets it when it restarts.
                await asyncio.to_thread(open_queues, *self._thrift)

    async def read(self) -> Mapping[tuple[int, int], QueueSetting]:
        held = await self._each(self._read_port, [(port,) for port in self._ports.values()])
        return {(setting.port, setting.queue): setting for settings in held for setting in settings}

    async def write(self, settings: Sequence[QueueSetting]) -> None:
        by_port: dict[int, dict[int, QueueSetting]] = {}
        for setting in settings:
            by_port.setdefault(setting.port, {})[setting.queue] = setting
        for number in by_port:
            if number not in self._ports:
                raise SouthboundError(f"switch {self._switch}: port {number} has no interface; add it to `interfaces`")
        await self._each(self._write_port, [(self._ports[number], changed) for number, changed in by_port.items()])

    async def _each(self, work: Callable[..., T], arguments: Sequence[tuple[object, ...]]) -> list[T]:
        """`work`, which blocks, for each port; all are tried before the first error is raised."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(given: tuple[object, ...]) -> T:
            async with slots:
                return await asyncio.to_thread(work, *given)

        results: list[T] = []
        refused: list[SouthboundError] = []
        for result in await asyncio.gather(*map(one, arguments), return_exceptions=True):
            if isinstance(result, SouthboundError):
                refused.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                results.append(result)
        if refused:
            more = f" (and {len(refused) - 1} more ports)" if len(refused) > 1 else ""
            raise SouthboundError(f"{refused[0]}{more}")
        return results

    def _read_port(self, shaped: ShapedPort) -> tuple[QueueSetting, ...]:
        with self._locks[shaped.number], self._errors(shaped):
            tree = self._root(shaped).tree
        if tree is None:
            return ()
        asked = self._asked.get(shaped.number)
        if asked is not None and tree_of(asked, shaped.port) == tree:
            return asked
        return settings_of(tree, shaped.number, shaped.port) or ()

    def _write_port(self, shaped: ShapedPort, changed: Mapping[int, QueueSetting]) -> None:
        with self._locks[shaped.number], self._errors(shaped):
            root = self._root(shaped)
            before = self._asked.get(shaped.number)
            if before is None and root.tree is not None:
                before = settings_of(root.tree, shaped.number, shaped.port)
            merged = {setting.queue: setting for setting in before or ()} | dict(changed)
            settings = tuple(merged[queue] for queue in sorted(merged))
            wanted = tree_of(settings, shaped.port)
            self._apply(shaped, root, wanted)
            self._asked[shaped.number] = settings

    def _apply(self, shaped: ShapedPort, root: Root, wanted: Tree) -> None:
        if root.tree is not None:
            lines = change(shaped.interface, root.tree, wanted, shaped.port)
            if lines:
                self._tc.run(lines)
            return
        if not (root.is_default or root.is_ours):
            raise TcError(
                f"a {root.kind} queueing discipline that is not ours is there; remove it: "
                f"tc qdisc del dev {shaped.interface} root"
            )
        try:
            self._tc.run(build(shaped.interface, wanted, shaped.port, over=root))
        except TcError:
            # Half a tree would let some levels wait for ever: better none.
            with suppress(TcError):
                self._tc.run([f"qdisc del dev {shaped.interface} root"])
            raise

    def _root(self, shaped: ShapedPort) -> Root:
        return parse(self._tc.run(show(shaped.interface)))

    def _check_depths(self) -> None:
        """BMv2 sends through one socket a port: were its buffer full before the queues are, it would block, and let
        packets into the tree in the order in which they came, whatever their level."""
        try:
            buffer_bytes = int(_SEND_BUFFER.read_text())
        except (OSError, ValueError):
            return
        for shaped in self._ports.values():
            most = buffer_bytes // (QUEUES * socket_bytes(shaped.port.frame_bytes))
            if shaped.port.depth_packets > most:
                raise ValueError(
                    f"depth {shaped.port.depth_packets}: {QUEUES} queues of so many packets exceed the send buffer of "
                    f"the switch's sockets ({buffer_bytes} bytes), so that levels would no longer count; "
                    f"give {most} or less, or raise net.core.wmem_default before the switch starts"
                )

    @contextmanager
    def _errors(self, shaped: ShapedPort | None = None) -> Iterator[None]:
        where = f"switch {self._switch}"
        if shaped is not None:
            where += f", port {shaped.number} ({shaped.interface})"
        try:
            yield
        except (TcError, ThriftError, ValueError) as error:
            raise SouthboundError(f"{where}: {error}") from None


def socket_bytes(frame_bytes: int) -> int:
    """What the kernel charges a packet socket's send buffer for one frame: its memory, a power of two, and a header."""
    return (1 << (frame_bytes + 352 - 1).bit_length()) + 256
