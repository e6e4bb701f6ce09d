"""The classes of process groups, in the process that makes them.

`echelon run-job` has Python load this file. Before a group is made, it asks run-job for its class.
PyTorch hands the class to NCCL, by the options of the group. Gloo has no such option: it opens all
connections of a group while the group is made, so these are marked here, each at both of its ends
by the process that has it, without any privilege.

This file imports nothing but the standard library and PyTorch, since it is also loaded into
environments that have no Echelon.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

SOCKET = "ECHELON_CLASSES_SOCKET"
"""The variable of the environment with the path of run-job's socket."""
_LAZY = "TORCH_GLOO_LAZY_INIT"
_UNSET = -(1 << 31)
"""NCCL_CONFIG_UNDEF_INT (nccl.h)."""
_PATIENCE_S = 60.0
_SOCKET_FILE = re.compile(r"socket:\[(\d+)\]")
_MAPPED = "::ffff:"
_Function = Callable[..., Any]
_Group = dict[str, Any]
"""A group as run-job is asked for its class."""
_Answer = Mapping[str, Any]
_Reader = Callable[[dict[str, Any]], _Group | None]
"""Returns the group that a call with these arguments makes; None: none that has a class."""


def install(distributed: Any) -> None:
    """Have the functions of `distributed_c10d` that make groups ask for classes."""
    setter = ClassSetter(distributed, os.environ[SOCKET])
    readers = {
        "init_process_group": setter.first,
        "new_group": setter.next,
        "split_group": setter.part,
    }
    for name, read in readers.items():
        function = getattr(distributed, name, None)
        if function is not None:
            setattr(distributed, name, _replaced(function, setter, read))


def _replaced(
    function: _Function,
    setter: ClassSetter,
    read: _Reader,
) -> _Function:
    signature = inspect.signature(function)

    @wraps(function)
    def make(*positional: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*positional, **named)
        except TypeError:
            # PyTorch says better what is wrong with them.
            return function(*positional, **named)

        answer = None
        before: Mapping[int, int] = {}
        with _program_goes_on():
            group = read(bound.arguments)
            if group is not None:
                answer = setter.prepare(group, bound.arguments)
                before = dict(_sockets())
        made_group = function(*bound.args, **bound.kwargs)
        if answer is not None:
            with _program_goes_on():
                setter.finish(made_group, answer, before)
        return made_group

    return make


@contextmanager
def _program_goes_on() -> Iterator[None]:
    """Have a fault here, as with another PyTorch, cost a group its class and nothing else."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        print(f"echelon run-job: a process group has no class: {reason}", file=sys.stderr)


class ClassSetter:
    """What gives groups their classes; `distributed` is `torch.distributed.distributed_c10d`."""

    def __init__(self, distributed: Any, path: str) -> None:
        self._distributed = distributed
        self._path = path

    def first(self, arguments: Mapping[str, Any]) -> _Group | None:
        """Return the group of all ranks that `init_process_group` makes of its arguments."""
        rank = _number(arguments.get("rank"), "RANK")
        world = _number(arguments.get("world_size"), "WORLD_SIZE")
        if rank is None or world is None:
            self._say("rank and size are not known before the group of all ranks is made: no class")
            return None
        backend = arguments.get("backend") or "undefined"
        return self._group(range(world), backend, rank, world)

    def next(self, arguments: Mapping[str, Any]) -> _Group | None:
        """Return the group that `new_group` makes, if this rank is in it."""
        rank = self._distributed.get_rank()
        world = self._distributed.get_world_size()
        ranks = arguments.get("ranks")
        if ranks is None:
            ranks = range(world)
        if rank not in ranks:
            return None
        backend = arguments.get("backend") or self._distributed.get_backend_config()
        return self._group(ranks, backend, rank, world)

    def part(self, arguments: dict[str, Any]) -> _Group | None:
        """Return the group that `split_group` makes, if this rank is in it."""
        parent = arguments.get("parent_pg") or self._distributed.group.WORLD
        backend = self._distributed.get_backend_config(parent)
        ranks_of_parent = self._distributed.get_process_group_ranks(parent)
        rank = self._distributed.get_rank()
        world = self._distributed.get_world_size()
        for places in arguments["split_ranks"]:
            ranks = [ranks_of_parent[place] for place in places]
            if rank in ranks:
                if arguments.get("pg_options") is None:
                    arguments["pg_options"] = self._options_of(parent)
                return self._group(ranks, backend, rank, world)
        return None

    def _group(
        self,
        ranks: Iterable[int],
        backend: object,
        rank: int,
        world: int,
    ) -> _Group:
        return {
            "rank": rank,
            "world": world,
            "ranks": list(ranks),
            "nccl": self._is_nccl(str(backend)),
        }

    def prepare(self, group: _Group, arguments: dict[str, Any]) -> _Answer:
        """Return the class of a group; if the group is NCCL's, its options get the class."""
        description = arguments.get("group_desc") or ""
        answer = self._ask({**group, "description": description})
        if group["nccl"]:
            self._give_options(arguments, answer["traffic_class"])
        return answer

    def finish(
        self,
        group: Any,
        answer: _Answer,
        before: Mapping[int, int],
    ) -> None:
        """Mark the connections that were not there before, if the group is one of Gloo."""
        backend = self._distributed.get_backend_config(group)
        if answer["tos"] and "gloo" in str(backend):
            self._mark(answer, before)

    def _is_nccl(self, backend: str) -> bool:
        if not self._distributed.is_nccl_available():
            return False
        return "nccl" in backend or backend == "undefined"

    # -- NCCL --------------------------------------------------------------------------------------

    def _options_of(self, parent: Any) -> Any:
        """Return the options that `split_group` would copy from a group of NCCL."""
        import torch

        if not torch.accelerator.is_available():
            return None
        device = torch.accelerator.current_accelerator()
        options = parent._get_backend(device).options  # noqa: SLF001
        if not isinstance(options, self._distributed.ProcessGroupNCCL.Options):
            return None
        options = copy.deepcopy(options)
        if hasattr(options.config, "traffic_class"):
            # The class is the parent's.
            options.config.traffic_class = _UNSET
        return options

    def _give_options(self, arguments: dict[str, Any], traffic_class: int | None) -> None:
        if traffic_class is None:
            return
        if getattr(self._distributed, "_use_torchcomms_enabled", bool)():
            self._say("PyTorch hands torchcomms no options: its packets are not marked")
            return
        nccl = self._distributed.ProcessGroupNCCL.Options
        options = arguments.get("pg_options")
        if options is None:
            options = nccl()
            timeout = arguments.get("timeout")
            # PyTorch warns of another time-out than the group's, which it sets anyway.
            options._timeout = timeout or self._distributed.default_pg_nccl_timeout  # noqa: SLF001
        elif isinstance(options, nccl):
            # PyTorch keeps the object, and a program may give it to other groups.
            options = copy.deepcopy(options)
        else:
            return
        if not hasattr(options.config, "traffic_class"):
            self._say(
                "this PyTorch has no traffic class for process groups of NCCL, whose packets are"
                " not marked (it needs PyTorch 2.8 with NCCL 2.26)"
            )
            return
        # A program that sets a class of its own keeps that.
        if options.config.traffic_class == _UNSET:
            options.config.traffic_class = traffic_class
        if getattr(options.config, "split_share", 0) == 1:
            self._say("NCCL gives groups that share resources (split_share) their parent's class")
        arguments["pg_options"] = options

    # -- Gloo --------------------------------------------------------------------------------------

    def _mark(self, answer: _Answer, before: Mapping[int, int]) -> None:
        """Mark the connections that have opened, but for those to the store."""
        if os.environ.get(_LAZY, "").lower() in ("1", "y", "yes", "t", "true"):
            self._say(f"Gloo opens connections later, unmarked (unset {_LAZY})")
            return
        tos = answer["tos"]
        store = self._store_port()
        marked = 0
        unmarked = set()
        for inode, descriptor in _sockets():
            if inode in before:
                continue
            # It may have closed meanwhile, or only listen.
            with suppress(OSError), _opened(descriptor) as tcp:
                if tcp.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                peer, port = tcp.getpeername()[:2]
                if store in (port, tcp.getsockname()[1]):
                    continue
                address = peer.removeprefix(_MAPPED)
                if address in tos:
                    tcp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos[address])
                    marked += 1
                else:
                    unmarked.add(address)
        if not marked:
            self._say(
                f"none of the connections is marked: {answer['note']}: they go to"
                f" {', '.join(sorted(unmarked)) or 'nobody'}, and the fabric gives its hosts"
                f" {', '.join(sorted(tos))} (set GLOO_SOCKET_IFNAME to the interface)"
            )

    def _store_port(self) -> int | None:
        store = self._distributed._get_default_store()  # noqa: SLF001
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return getattr(store, "port", None)

    # -- run-job -----------------------------------------------------------------------------------

    def _ask(self, group: _Group) -> _Answer:
        answer: _Answer = json.loads(self._talk(group))
        return answer

    def _say(self, line: str) -> None:
        with suppress(OSError):
            self._talk({"say": line})

    def _talk(self, message: Mapping[str, Any]) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as run_job:
            run_job.settimeout(_PATIENCE_S)
            run_job.connect(self._path)
            run_job.sendall(json.dumps(message).encode() + b"\n")
            with run_job.makefile(encoding="utf-8") as answer:
                return answer.readline()


def _number(argument: Any, variable: str) -> int | None:
    """Return a number that the program or else its environment gives."""
    if argument not in (None, -1):
        return int(argument)
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def _sockets() -> Iterator[tuple[int, int]]:
    """Yield number and descriptor of each socket of this process."""
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            match = _SOCKET_FILE.fullmatch(str(file.readlink()))
            if match is not None:
                yield int(match[1]), int(file.name)


@contextmanager
def _opened(descriptor: int) -> Iterator[socket.socket]:
    """Yield a socket of a library, which keeps it."""
    is_blocking = os.get_blocking(descriptor)
    with socket.socket(fileno=os.dup(descriptor)) as tcp:
        # Python changes it where the program has set a default time-out.
        os.set_blocking(descriptor, is_blocking)
        yield tcp
