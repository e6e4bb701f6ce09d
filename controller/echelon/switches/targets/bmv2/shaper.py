"""HTB trees in the kernel: read, built and changed over netlink."""

from __future__ import annotations

import errno
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from echelon.model.errors import Code, CodedError
from echelon.switches.processes import open_netlink
from echelon.switches.targets.bmv2.htb import QUEUES, HtbTree, Leaf, Port, burst_bytes

if TYPE_CHECKING:
    from pyroute2 import IPRoute  # type: ignore[import-untyped]

HANDLE = 0xEC0000
"""Handle of the root queueing discipline, ec: in the notation of `tc`.

Echelon did not install one with another.
"""

_NAMED = "/run/netns/"
_ROOT = 0xFFFFFFFF
_ROOT_CLASS = HANDLE | 0x1
_FIRST_LEAF = 0x10
_ETHERTYPE_IPV4 = 0x0800
# Class selector in the upper three bits of DSCP, in an IPv4 header without options: the switch has
# written it.
_FILTER_MASK = 0x0FE00000
_FILTERS: Mapping[int, int] = {queue: 0x05000000 | queue << 21 for queue in range(1, QUEUES)}
_WANTED_FILTERS = Counter((queue, value, _FILTER_MASK, 0) for queue, value in _FILTERS.items())


class ShaperError(CodedError):
    """The error for a kernel that cannot be reached, or refuses.

    The text is one line, with a remedy where known.
    """

    code: Code = "switch-failed"


@dataclass(frozen=True, slots=True)
class Root:
    """The root queueing discipline of an interface."""

    kind: str
    handle: int
    tree: HtbTree | None = None
    """None: it is not Echelon's, or it is damaged."""

    @property
    def is_default(self) -> bool:
        """Whether the kernel made it, for want of another."""
        return self.handle == 0

    @property
    def is_ours(self) -> bool:
        return self.handle == HANDLE and self.kind == "htb"


class Shaper:
    """The queueing disciplines of one network namespace.

    The namespace is given by name, by its path as /proc/PID/ns/net, or as None: the caller's. All
    calls block, and raise `ShaperError`.
    """

    def __init__(self, namespace: str | None = None) -> None:
        self._namespace = namespace

    @contextmanager
    def interface(self, name: str) -> Iterator[ShapedInterface]:
        """Open an interface: everything inside uses one netlink socket."""
        from pyroute2 import NetlinkError

        where = "" if self._namespace is None else f" in namespace {self._namespace}"
        try:
            with self._open() as netlink:
                indices = netlink.link_lookup(ifname=name)
                if not indices:
                    raise ShaperError(
                        f"there is no such interface{where}; check `interfaces` and `namespace`"
                    )
                yield ShapedInterface(netlink, indices[0])
        except NetlinkError as error:
            if error.code in (errno.EPERM, errno.EACCES):
                raise ShaperError(self._not_permitted(where)) from None
            if error.code == errno.ENOENT:
                reason = (
                    "the kernel lacks HTB, u32 or pfifo; load the modules sch_htb,"
                    " cls_u32 and sch_fifo"
                )
                raise ShaperError(reason) from None
            raise ShaperError(f"the kernel refuses an HTB tree: {error.args[-1]}") from None

    def _open(self) -> IPRoute:
        name = self._namespace
        try:
            is_path = name is None or name.startswith("/")
            return open_netlink(name if is_path else f"{_NAMED}{name}")
        except FileNotFoundError:
            raise ShaperError(
                f"there is no network namespace {name}; is the switch running?"
            ) from None
        except PermissionError:
            raise ShaperError(self._not_permitted(f" in namespace {name}")) from None
        except OSError as error:
            raise ShaperError(
                f"network namespace {name} cannot be entered: {error.strerror}"
            ) from None

    def _not_permitted(self, where: str) -> str:
        needed = "CAP_NET_ADMIN" + ("" if self._namespace is None else " and CAP_SYS_ADMIN")
        return f"not permitted{where}; run as root, or with {needed}"


class ShapedInterface:
    """The queueing disciplines, classes and filters of one interface."""

    def __init__(self, netlink: IPRoute, index: int) -> None:
        self._netlink = netlink
        self._index = index

    def read(self) -> Root:
        """Return the root queueing discipline, with its tree where that is as `build` makes it."""
        disciplines = list(self._netlink.get_qdiscs(index=self._index))
        roots = [discipline for discipline in disciplines if discipline["parent"] == _ROOT]
        if not roots:
            return Root("noqueue", 0)
        discipline = roots[0]
        root = Root(discipline.get_attr("TCA_KIND"), discipline["handle"])
        if not root.is_ours:
            return root
        try:
            if _options(discipline)["TCA_HTB_INIT"]["defcls"] != _FIRST_LEAF:
                return root
            return replace(root, tree=self._tree(disciplines))
        except _DamagedError:
            return root

    def build(
        self,
        tree: HtbTree,
        port: Port,
        *,
        over: Root,
    ) -> None:
        """Put the tree in the place of `over`.

        Packets pass unshaped for the milliseconds until the classes are there; what waited in the
        old tree is lost.
        """
        if not over.is_default:
            self.remove()
        self._netlink.tc("add", "htb", self._index, HANDLE, default=_FIRST_LEAF)
        self._root_class("add-class", tree, port)
        for queue, leaf in enumerate(tree.leaves):
            self._leaf_class("add-class", queue, leaf, port)
            self._leaf_queue("add", queue, leaf)
        for queue, value in _FILTERS.items():
            keys = [f"{value:#010x}/{_FILTER_MASK:#010x}+0"]
            where = {"parent": HANDLE, "prio": 1, "protocol": _ETHERTYPE_IPV4}
            self._netlink.tc(
                "add-filter",
                "u32",
                self._index,
                target=_leaf(queue),
                keys=keys,
                **where,
            )

    def change(
        self,
        held: HtbTree,
        wanted: HtbTree,
        port: Port,
    ) -> None:
        """Turn one tree of ours into another.

        Classes change where they are, with the packets that wait in them.
        """
        if held.rate_bps != wanted.rate_bps:
            self._root_class("change-class", wanted, port)
        leaves = zip(held.leaves, wanted.leaves, strict=True)
        for queue, (before, after) in enumerate(leaves):
            if before.limit_packets != after.limit_packets:
                self._leaf_queue("change", queue, after)
            if replace(before, limit_packets=after.limit_packets) != after:
                self._leaf_class("change-class", queue, after, port)

    def remove(self) -> None:
        """Remove the root queueing discipline, with everything below it."""
        self._netlink.tc(
            "del",
            index=self._index,
            parent=_ROOT,
        )

    def _root_class(
        self,
        command: str,
        tree: HtbTree,
        port: Port,
    ) -> None:
        burst = burst_bytes(tree.rate_bps, 2 * port.frame_bytes)
        rate = tree.rate_bps // 8
        shape = {"rate": rate, "ceil": rate, "burst": burst, "cburst": burst}
        self._netlink.tc(command, "htb", self._index, _ROOT_CLASS, parent=HANDLE, **shape)

    def _leaf_class(
        self,
        command: str,
        queue: int,
        leaf: Leaf,
        port: Port,
    ) -> None:
        shape = {
            "rate": leaf.rate_bps // 8,
            "ceil": leaf.ceil_bps // 8,
            "burst": burst_bytes(leaf.rate_bps, port.frame_bytes),
            "cburst": burst_bytes(leaf.ceil_bps, port.frame_bytes),
            "prio": leaf.prio,
            "quantum": leaf.quantum_bytes,
        }
        self._netlink.tc(command, "htb", self._index, _leaf(queue), parent=_ROOT_CLASS, **shape)

    def _leaf_queue(
        self,
        command: str,
        queue: int,
        leaf: Leaf,
    ) -> None:
        handle = _leaf_queue_handle(queue)
        limit = leaf.limit_packets
        self._netlink.tc(
            command,
            "pfifo",
            self._index,
            handle,
            parent=_leaf(queue),
            limit=limit,
        )

    def _tree(self, disciplines: list[Any]) -> HtbTree:
        """Return the tree. Raise `_DamagedError`."""
        limits = {}
        for discipline in disciplines:
            if discipline.get_attr("TCA_KIND") == "pfifo":
                limits[discipline["handle"]] = discipline.get_attr("TCA_OPTIONS")["limit"]

        rate_bps = 0
        leaves: dict[int, Leaf] = {}
        for htb_class in self._netlink.get_classes(index=self._index):
            options = _options(htb_class)
            parameters = options.get("TCA_HTB_PARMS")
            if parameters is None:
                raise _DamagedError
            # Rates from 32 bits of bytes per second on have attributes of their own.
            rate = 8 * options.get("TCA_HTB_RATE64", parameters["rate"])
            ceil = 8 * options.get("TCA_HTB_CEIL64", parameters["ceil"])
            parent = htb_class["parent"]
            handle = htb_class["handle"]
            if parent == _ROOT:
                if rate != ceil or handle != _ROOT_CLASS:
                    raise _DamagedError
                rate_bps = rate
                continue
            queue = handle - _leaf(0)
            fifo = htb_class["info"]
            is_ours = parent == _ROOT_CLASS and fifo == _leaf_queue_handle(queue)
            if not is_ours or fifo not in limits:
                raise _DamagedError
            prio = parameters["prio"]
            leaves[queue] = Leaf(rate, ceil, prio, parameters["quantum"], limits[fifo])

        is_complete = rate_bps and sorted(leaves) == list(range(QUEUES))
        if not is_complete or Counter(self._filters()) != _WANTED_FILTERS:
            raise _DamagedError
        return HtbTree(rate_bps, tuple(leaves[queue] for queue in range(QUEUES)))

    def _filters(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (queue, value, mask, offset) of each match."""
        for packet_filter in self._netlink.get_filters(
            index=self._index,
            parent=HANDLE,
        ):
            options = _options(packet_filter)
            selector: Any = options.get("TCA_U32_SEL", {"nkeys": 0})
            for number in range(selector["nkeys"]):
                # From the message: pyroute2 0.9 decodes keys as if they began 4 bytes earlier.
                start = selector.offset + _SELECTOR_BYTES + number * _KEY_BYTES
                mask, value = struct.unpack_from(">II", selector.data, start)
                (offset,) = struct.unpack_from("=i", selector.data, start + 8)
                queue = options.get("TCA_U32_CLASSID", 0) - _leaf(0)
                yield queue, value, mask, offset


_SELECTOR_BYTES = 20
"""Length of struct tc_u32_sel without its keys, and of the attribute's header before it."""
_KEY_BYTES = 16
"""Length of struct tc_u32_key: mask, value, offset, offset mask."""


class _DamagedError(Exception):
    """The error for a tree that is not as `build` makes it."""


def _options(message: Any) -> dict[str, Any]:
    """Return the attributes in TCA_OPTIONS, by name."""
    options = message.get_attr("TCA_OPTIONS")
    if options is None:
        return {}
    return dict(options["attrs"])


def _leaf(queue: int) -> int:
    return HANDLE | _FIRST_LEAF + queue


def _leaf_queue_handle(queue: int) -> int:
    return (HANDLE >> 16) << 24 | (_FIRST_LEAF + queue) << 16
