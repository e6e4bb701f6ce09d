"""The observer of a rank's communication: what it calls, when it waits, and where iterations end.

All communication of PyTorch passes the operators `c10d::*` of its dispatcher, whether Python asks
for it (pipelines, FSDP) or C++ (the buckets of DDP, functional collectives). The observer puts a
kernel before each, which notes the call and calls the one behind it. Nothing is done for operators
that compute, so the cost of an iteration grows with its collectives, and with its modules, whose
names say what computes. PyTorch's own observers, the profiler and the execution trace, note each
operator.

A rank waits in `Work.wait`, in `wait_tensor`, and at the end of a backward pass, when DDP waits for
its buckets in C++. Callbacks of the autograd engine run in the order in which they were queued;
those of the observer are before and behind DDP's. Everything else that a rank does is its
computing.

This file imports nothing but the standard library and PyTorch, since `echelon capture` also loads
it into environments that have no Echelon.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

FORMAT = 1
_MOST_CALLS = 20_000
"""The number of calls after which an observer ends that has seen no iteration end."""
_WRAPPERS = ("module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_UNNAMED = ("undefined", "default_pg")
"""The names in PyTorch of process groups without a description by the program."""
_now = time.perf_counter
_active: Observer | None = None


def observe(
    out: str | None = None,
    iterations: int | None = None,
    skip: int | None = None,
) -> Observer:
    """Observe this rank from now on, and return the observer. Call it behind `init_process_group`.

    An iteration ends with the step of an optimizer, or with `Observer.step`. The first `skip` (3)
    iterations are not recorded, the next `iterations` (10) are. A script in which no iteration ends
    is recorded as a whole.

    The record of rank 0 is written to `out`/rank-0.json when all iterations are recorded, or when
    the process ends; `out` is the directory `capture` by default. Under `echelon capture`,
    arguments that are left out are the options of the command. While an observer is at work,
    `observe` returns that one.
    """
    global _active
    if _active is None:
        environment = os.environ
        if iterations is None:
            iterations = int(environment.get("ECHELON_CAPTURE_ITERATIONS", 10))
        if skip is None:
            skip = int(environment.get("ECHELON_CAPTURE_SKIP", 3))
        directory = out or environment.get("ECHELON_CAPTURE_OUT", "capture")
        _active = Observer(Path(directory), iterations, skip)
    return _active


class Observer:
    """An observer of one rank, and a context manager that ends with its block."""

    def __init__(
        self,
        out: Path,
        iterations: int,
        skip: int,
    ) -> None:
        import torch
        from torch import distributed
        from torch.distributed import _functional_collectives as functional
        from torch.nn.modules import module
        from torch.optim import optimizer

        if not distributed.is_initialized():
            raise RuntimeError(
                "observe() needs a process group (call it behind"
                " torch.distributed.init_process_group)"
            )
        self.rank: int = distributed.get_rank()
        self._out = out
        self._iterations = iterations
        self._skip = skip
        self._distributed = distributed
        self._engine = torch.autograd.Variable._execution_engine
        self._task = torch._C._current_graph_task_id
        self._last_task = -1
        # This key is in every call, and below autograd, where functional collectives call theirs.
        key = torch._C.DispatchKey.BackendSelect
        self._below = torch._C._dispatch_keyset_full_after(key)
        self._groups: dict[str, dict[str, Any]] = {}
        self._device = "cpu"
        self._optimizer: int | None = None
        self._done: list[dict[str, Any]] = []
        self._calls: list[dict[str, Any]] = []
        self._waits: list[dict[str, Any]] = []
        self._open: dict[int, tuple[dict[str, Any], Any, tuple[int, ...]]] = {}
        """The calls not waited for, by the identity of their works: call, work, addresses."""
        self._futures: dict[int, Any] = {}
        """The futures of those, as far as they have one."""
        self._backward: list[int] = []
        """The works that were called in the backward pass."""
        self._start: float | None = None
        self._delayed = 0.0
        """The time for which this thread has waited for a processor until the iteration began."""
        self._names: dict[int, str] = {}
        """The name of each module in the model that calls it, by its identity."""
        self._within: list[int] = []
        """The modules whose forward pass is under way, the innermost last."""
        self._closed = False
        self._library = torch.library.Library("c10d", "IMPL")
        for name, describe in _DESCRIBE.items():
            operator = getattr(torch.ops.c10d, name, None)
            if operator is not None:
                kernel = self._kernel(operator.default, describe)
                self._library.impl(name, kernel, key.name, with_keyset=True)
        self._functional = functional
        self._wait = distributed.Work.wait
        self._wait_tensor = functional.wait_tensor
        self._observe_waits()
        self._hooks = (
            optimizer.register_optimizer_step_post_hook(self._stepped),
            module.register_module_forward_pre_hook(self._enters),
            module.register_module_forward_hook(self._leaves, always_call=True),
        )
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _observe_waits(self) -> None:
        # Plain functions, since a bound method would not take the work as its first argument.
        def wait(
            work: Any,
            *arguments: Any,
            **named: Any,
        ) -> Any:
            start = _now()
            result = self._wait(work, *arguments, **named)
            self._note_wait(start, [id(work)])
            return result

        def wait_tensor(tensor: Any) -> Any:
            works = self._works_of(tensor)
            start = _now()
            result = self._wait_tensor(tensor)
            self._note_wait(start, works)
            return result

        self._distributed.Work.wait = wait
        self._functional.wait_tensor = wait_tensor

    def step(self) -> None:
        """End an iteration, in scripts without an optimizer."""
        if self._closed:
            return
        now = _now()
        delayed = _waited_for_processor()
        if self._skip > 0:
            self._skip -= 1
        elif self._start is not None:
            calls = self._calls
            waits = self._waits
            times = {"start_s": self._start, "end_s": now, "delayed_s": delayed - self._delayed}
            self._done.append({**times, "calls": calls, "waits": waits})
        self._calls = []
        self._waits = []
        self._start = now
        self._delayed = delayed
        self._open.clear()
        self._futures.clear()
        if self._skip <= 0 and len(self._done) >= self._iterations:
            self.close()

    def close(self) -> None:
        """Stop observing, and write what was recorded."""
        global _active
        if self._closed:
            return
        self._closed = True
        _active = None
        atexit.unregister(self.close)
        for hook in self._hooks:
            hook.remove()
        self._distributed.Work.wait = self._wait
        self._functional.wait_tensor = self._wait_tensor
        self._library._destroy()
        self._write()

    def _write(self) -> None:
        import socket

        import torch

        record = {
            "echelon_capture": FORMAT,
            "rank": self.rank,
            "ranks": self._world(),
            "host": socket.gethostname(),
            "torch": str(torch.__version__),
            "device": self._device,
            "groups": self._groups,
            "iterations": self._done,
            "unmarked": None if self._done else {"calls": self._calls, "waits": self._waits},
        }
        self._out.mkdir(parents=True, exist_ok=True)
        path = self._out / f"rank-{self.rank}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(record, separators=(",", ":")), encoding="utf-8")
        partial.replace(path)

    def _world(self) -> int:
        if self._distributed.is_initialized():
            return int(self._distributed.get_world_size())
        ranks = [self.rank]
        for group in self._groups.values():
            ranks += group["ranks"]
        return max(ranks) + 1

    def _stepped(self, optimizer: object, *_arguments: object) -> None:
        """End an iteration at the first optimizer's step: those of others belong to it."""
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if self._optimizer == id(optimizer):
            self.step()

    def _kernel(self, operator: Any, describe: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
        def kernel(
            keys: Any,
            *arguments: Any,
            **named: Any,
        ) -> Any:
            start = _now()
            result = operator.redispatch(keys & self._below, *arguments, **named)
            if not self._closed:
                self._called(start, describe, arguments, result)
            return result

        return kernel

    def _called(
        self,
        start: float,
        describe: Callable[..., dict[str, Any]],
        arguments: Any,
        result: Any,
    ) -> None:
        call = describe(arguments)
        tensors = call.pop("tensors")
        group = call["group"]
        call["group"] = self._group(group)
        call.update(
            start_s=start,
            end_s=None,
            backward=self._in_backward(),
        )
        call.update(
            number=len(self._calls),
            returned_s=_now(),
            module=self._module(),
        )
        self._calls.append(call)
        if len(self._calls) == _MOST_CALLS:
            self.close()
            return
        work = self._work(result)
        if work is not None:
            self._note_work(call, work, tensors)

    def _note_work(
        self,
        call: dict[str, Any],
        work: Any,
        tensors: Any,
    ) -> None:
        identity = id(work)
        if tensors and tensors[0].device.type != "cpu":
            # The future of a stream is there at once. The device alone knows when its operations
            # end.
            self._device = tensors[0].device.type
        else:
            # Transfers have no future: they have ended when a rank has waited for them.
            with suppress(RuntimeError):
                future = work.get_future()
                self._futures[identity] = future
                future.add_done_callback(lambda _future: _ended(call))

        addresses = tuple(tensor.data_ptr() for tensor in tensors)
        self._open[identity] = call, work, addresses
        if call["backward"] and identity in self._futures:
            self._backward.append(identity)

    def _enters(self, module: Any, _arguments: object) -> None:
        if not self._within and id(module) not in self._names:
            for name, each in module.named_modules():
                # Wrappers, as that of DDP, are no part of the model.
                parts = [part for part in name.split(".") if part not in _WRAPPERS]
                name = ".".join(parts)
                self._names.setdefault(id(each), name or type(each).__name__)
        self._within.append(id(module))

    def _leaves(
        self,
        module: Any,
        _arguments: object,
        _result: object,
    ) -> None:
        if self._within and self._within[-1] == id(module):
            self._within.pop()

    def _module(self) -> str:
        if self._within:
            return self._names.get(self._within[-1], "")
        return ""

    def _work(self, result: Any) -> Any:
        if isinstance(result, tuple):
            result = result[-1]
        try:
            return self._distributed.Work.unbox(result)
        except (RuntimeError, TypeError):
            return None

    def _group(self, boxed: Any) -> str:
        group = self._distributed.ProcessGroup.unbox(boxed)
        name = str(group.group_name)
        if name not in self._groups:
            ranks = self._distributed.get_process_group_ranks(group)
            backend = self._distributed.get_backend(group)
            called = str(group.group_desc)
            if called in _UNNAMED:
                called = ""
            self._groups[name] = {"ranks": list(ranks), "backend": str(backend), "called": called}
        return name

    def _in_backward(self) -> bool:
        task = self._task()
        if task not in (-1, self._last_task):
            self._last_task = task
            self._engine.queue_callback(self._ends_backward)
        return bool(task != -1)

    def _ends_backward(self) -> None:
        """Run before DDP's callback, which waits for its buckets, and queue another behind it."""
        if not self._backward:
            return
        works = self._backward
        self._backward = []
        start = _now()

        def note_ended() -> None:
            ended = [work for work in works if self._has_ended(work)]
            if ended:
                self._note_wait(start, ended, backward=True)

        self._engine.queue_callback(note_ended)

    def _has_ended(self, work: int) -> bool:
        # DDP waits for futures. A work counts as completed only later. One that was awaited is
        # gone, and another one without a future may have its identity by now.
        return work in self._futures and bool(self._futures[work].done())

    def _works_of(self, tensor: Any) -> list[int]:
        address = getattr(tensor, "elem", tensor).data_ptr()
        return [work for work, (_, _, addresses) in self._open.items() if address in addresses]

    def _note_wait(
        self,
        start: float,
        works: list[int],
        backward: bool = False,
    ) -> None:
        end = _now()
        numbers = []
        for work in works:
            if work not in self._open:
                continue
            call, _, _ = self._open.pop(work)
            self._futures.pop(work, None)
            numbers.append(call["number"])
            if call["end_s"] is None:
                call["end_s"] = end
        self._waits.append({"start_s": start, "end_s": end, "calls": numbers, "backward": backward})


def _waited_for_processor() -> float:
    """Return the seconds for which this thread waited for a processor; 0 where Linux is silent."""
    path = Path("/proc/thread-self/schedstat")
    try:
        _, waited_ns, *_ = path.read_text().split()
        return int(waited_ns) / 1e9
    except (OSError, ValueError):
        return 0.0


def _ended(call: dict[str, Any]) -> None:
    if call["end_s"] is None:
        call["end_s"] = _now()


def _bytes(*tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _of_tensors(kind: str, arguments: Any) -> dict[str, Any]:
    tensors, group, *_ = arguments
    return {"kind": kind, "group": group, "bytes": _bytes(*tensors), "tensors": tensors}


def _from_inputs(kind: str, arguments: Any) -> dict[str, Any]:
    """Describe an operation with outputs, inputs and a group. The inputs are what a rank gives."""
    outputs, inputs, group, *_ = arguments
    if not isinstance(outputs, list):
        outputs = [outputs]
    while outputs and isinstance(outputs[0], list):
        outputs = outputs[0]
    size = _bytes(*_flat(inputs))
    return {"kind": kind, "group": group, "bytes": size, "tensors": outputs}


def _flat(tensors: Any) -> list[Any]:
    """Return the tensors of a list, which may hold lists, or a tensor alone."""
    if not isinstance(tensors, list):
        return [tensors]
    return [tensor for each in tensors for tensor in _flat(each)]


def _rooted(
    describe: Callable[[str, Any], dict[str, Any]],
    kind: str,
    root: int,
    arguments: Any,
) -> dict[str, Any]:
    """Describe an operation of which the argument number `root` is the root."""
    described = describe(kind, arguments)
    described["peer"] = arguments[root]
    return described


def _scatter(arguments: Any) -> dict[str, Any]:
    # All know what they get, and the root alone what it gives.
    described = _of_tensors("scatter", arguments)
    described.update(
        group=arguments[2],
        peer=arguments[3],
    )
    return described


def _all_to_all(arguments: Any) -> dict[str, Any]:
    described = _from_inputs("all-to-all", arguments)
    inputs = arguments[1]
    if isinstance(inputs, list):
        described["parts"] = [_bytes(each) for each in inputs]
        return described
    rows_by_rank = arguments[4]
    if rows_by_rank:
        rows = sum(rows_by_rank)
        row_bytes = _bytes(inputs) // rows if rows else 0
        described["parts"] = [each * row_bytes for each in rows_by_rank]
    return described


def _transfer(kind: str, arguments: Any) -> dict[str, Any]:
    described = _of_tensors(kind, arguments)
    described.update(
        peer=arguments[2],
        tag=arguments[3],
    )
    return described


def _barrier(arguments: Any) -> dict[str, Any]:
    return {"kind": "barrier", "group": arguments[1], "bytes": 0, "tensors": []}


_all_reduce = partial(_of_tensors, "all-reduce")
_all_gather = partial(_from_inputs, "all-gather")
_reduce_scatter = partial(_from_inputs, "reduce-scatter")

_DESCRIBE: dict[str, Callable[..., dict[str, Any]]] = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce,
    "broadcast_": partial(_rooted, _of_tensors, "broadcast", 2),
    "reduce_": partial(_rooted, _of_tensors, "reduce", 3),
    "allgather_": _all_gather,
    "_allgather_base_": _all_gather,
    "allgather_coalesced_": _all_gather,
    "allgather_into_tensor_coalesced_": _all_gather,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _reduce_scatter,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter,
    "gather_": partial(_rooted, _from_inputs, "gather", 3),
    "scatter_": _scatter,
    "alltoall_": _all_to_all,
    "alltoall_base_": _all_to_all,
    "barrier": _barrier,
    "send": partial(_transfer, "send"),
    "recv_": partial(_transfer, "receive"),
}
"""The readers of c10d's operators.

Each returns, from the arguments, the kind, the process group, and the bytes that this rank gives.
"""
