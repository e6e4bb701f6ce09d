"""The queues of a BMv2: HTB trees on the interfaces behind its egress ports."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.targets.bmv2.htb import QUEUES, HtbTree, Port, settings_of, tree_of
from echelon.switches.targets.bmv2.options import ServerAddress
from echelon.switches.targets.bmv2.shaper import Root, ShapedInterface, Shaper, ShaperError
from echelon.switches.targets.bmv2.sockets import deepest_queue, send_buffer_bytes
from echelon.switches.targets.bmv2.thrift import ThriftError, open_queues

if TYPE_CHECKING:
    from finsy import GNMIClient

T = TypeVar("T")

_AT_ONCE = 4
"""Number of ports of one switch that are read or written at the same time."""


@dataclass(frozen=True, slots=True)
class ShapedPort:
    """An egress port, and the interface that carries its tree."""

    number: int
    interface: str
    port: Port


class Bmv2Queues:
    """The `QueueDriver` of a BMv2.

    It needs CAP_NET_ADMIN, and CAP_SYS_ADMIN for a namespace other than its own. `thrift` is the
    address of the switch's Thrift server; without it the switch's own queues are left alone.
    `send_buffer` is the size of the buffers of the switch's sockets; without it, they have the
    machine's default.
    """

    def __init__(
        self,
        switch: str,
        ports: Sequence[ShapedPort],
        namespace: str | None = None,
        thrift: ServerAddress | None = None,
        send_buffer: int | None = None,
    ) -> None:
        self._switch = switch
        self._ports = {port.number: port for port in ports}
        # A cancelled call may still be at work in its thread when the next one comes.
        self._locks = {number: threading.Lock() for number in self._ports}
        self._shaper = Shaper(namespace)
        self._thrift = thrift
        self._send_buffer = send_buffer
        self._asked: dict[int, tuple[QueueSetting, ...]] = {}
        """The settings from which the tree of each port was made, by queue.

        The tree alone does not tell them exactly.
        """

    async def open(self, gnmi: GNMIClient | None) -> None:
        with self._errors():
            self._check_depths()
            if self._thrift is not None:
                # BMv2 does not tell the depth of its queues, and forgets it when it restarts.
                await asyncio.to_thread(open_queues, self._thrift)

    async def read(self) -> Mapping[tuple[int, int], QueueSetting]:
        calls = [partial(self._read_port, port) for port in self._ports.values()]
        held = {}
        # A port that cannot be read cannot be set either: `write` says why.
        read, _ = await self._call_all(calls)
        for settings in read:
            for setting in settings:
                held[setting.port, setting.queue] = setting
        return held

    async def write(self, settings: Sequence[QueueSetting]) -> None:
        by_port: dict[int, dict[int, QueueSetting]] = {}
        for setting in settings:
            by_queue = by_port.setdefault(setting.port, {})
            by_queue[setting.queue] = setting
        calls = []
        for number, changed in by_port.items():
            if number not in self._ports:
                raise SouthboundError(
                    f"switch {self._switch}: port {number} has no interface; add it to `interfaces`"
                )
            call = partial(self._write_port, self._ports[number], changed)
            calls.append(call)
        _, refused = await self._call_all(calls)
        if len(refused) > 1:
            raise SouthboundError(f"{refused[0]} (and {len(refused) - 1} more ports)")
        if refused:
            raise SouthboundError(str(refused[0]))

    async def _call_all(
        self, calls: Iterable[Callable[[], T]]
    ) -> tuple[list[T], list[SouthboundError]]:
        """Make calls that block, each of one port, and return what came of them."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def in_thread(call: Callable[[], T]) -> T:
            async with slots:
                return await asyncio.to_thread(call)

        results: list[T] = []
        refused: list[SouthboundError] = []
        work = map(in_thread, calls)
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, SouthboundError):
                refused.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                results.append(result)
        return results, refused

    def _read_port(self, shaped: ShapedPort) -> tuple[QueueSetting, ...]:
        with self._opened(shaped) as interface:
            tree = interface.read().tree
        if tree is None:
            return ()
        asked = self._asked.get(shaped.number)
        if asked is not None and tree_of(asked, shaped.port) == tree:
            return asked
        return settings_of(tree, shaped.number, shaped.port) or ()

    def _write_port(self, shaped: ShapedPort, changed: Mapping[int, QueueSetting]) -> None:
        with self._opened(shaped) as interface:
            root = interface.read()
            before = self._asked.get(shaped.number)
            if before is None and root.tree is not None:
                before = settings_of(root.tree, shaped.number, shaped.port)
            by_queue = {setting.queue: setting for setting in before or ()}
            by_queue.update(changed)
            settings = tuple(by_queue[queue] for queue in sorted(by_queue))
            wanted = tree_of(settings, shaped.port)
            self._apply(shaped, interface, root, wanted)
            self._asked[shaped.number] = settings

    def _apply(
        self,
        shaped: ShapedPort,
        interface: ShapedInterface,
        root: Root,
        wanted: HtbTree,
    ) -> None:
        if root.tree is not None:
            interface.change(root.tree, wanted, shaped.port)
            return
        if not (root.is_default or root.is_ours):
            raise ShaperError(
                f"there is a {root.kind} queueing discipline that Echelon did not install;"
                f" remove it: tc qdisc del dev {shaped.interface} root"
            )
        try:
            interface.build(wanted, shaped.port, over=root)
        except Exception:
            # With half a tree some levels would wait for ever, so none is better.
            with suppress(Exception):
                interface.remove()
            raise

    @contextmanager
    def _opened(self, shaped: ShapedPort) -> Iterator[ShapedInterface]:
        with (
            self._locks[shaped.number],
            self._errors(shaped),
            self._shaper.interface(shaped.interface) as interface,
        ):
            yield interface

    def _check_depths(self) -> None:
        """Raise ValueError for queues that the send buffers of BMv2's sockets do not hold."""
        buffer_bytes = self._send_buffer or send_buffer_bytes()
        if buffer_bytes is None:
            return
        for shaped in self._ports.values():
            most = deepest_queue(shaped.port.frame_bytes, buffer_bytes)
            if shaped.port.depth_packets > most:
                raise ValueError(
                    f"depth {shaped.port.depth_packets}: {QUEUES} queues of this depth exceed the"
                    f" send buffer of the switch's sockets ({buffer_bytes} bytes), so levels would"
                    f" have no effect; give {most} or less, or raise net.core.wmem_default before"
                    " the switch starts"
                )

    @contextmanager
    def _errors(self, shaped: ShapedPort | None = None) -> Iterator[None]:
        where = f"switch {self._switch}"
        if shaped is not None:
            where += f", port {shaped.number} ({shaped.interface})"
        try:
            yield
        except (ShaperError, ThriftError, ValueError) as error:
            raise SouthboundError(f"{where}: {error}") from None
