"""PyTorch's collectives through the network: the backend `echelon`, and a hook for DDP.

    import echelon_aggregation.torch_backend
    torch.distributed.init_process_group(backend="cpu:echelon")

Sums of float32 and int32, reduce-scatter and broadcasts go through the tree of the file that
ECHELON_AGGREGATION names (`membership`). Everything else goes through Gloo; the log says so once
for each kind.

torch 2.13 has no base class of backends for Python (`Backend` has no constructor), but takes a
`ProcessGroup` of a plug-in in its place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread
from time import monotonic
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroup, ProcessGroupGloo, ReduceOp, Store, Work

from echelon.model.errors import RunError
from echelon_aggregation.membership import read_membership
from echelon_aggregation.presence import Presence, Word
from echelon_aggregation.station import Station
from echelon_aggregation.worker import Collective, all_reduce, broadcast, reduce_scatter

_log = logging.getLogger("echelon.aggregation")
_BEATS = 10
"""The number of signs of life that a worker gives in the time after which silence means its end."""
_NUMBERS = (torch.float32, torch.int32)
_Future = torch.futures.Future


class _Ended(Work):  # type: ignore[misc]
    """A collective, whose `wait` raises what ended it."""

    def __init__(self, future: Any) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def get_future(self) -> Any:
        return self._future


class AggregationGroup(ProcessGroup):  # type: ignore[misc]
    """A process group whose sums the network makes.

    Raises `RunError` and `DocumentError` where the file is wrong.

    A group of another size than that of the file, a part of the ranks for example, goes through
    Gloo altogether.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
    ) -> None:
        super().__init__(rank, size)
        self._rank = rank
        self._size = size
        self._timeout_s = timeout.total_seconds()
        self._gloo = ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout)
        self._said: set[str] = set()
        self._station: Station | None = None
        self.epoch = 0
        """The iteration that packets belong to; the hook counts it."""
        membership = read_membership()
        if size != len(membership.workers):
            self._say("a group", f"it has {size} of {len(membership.workers)} workers")
            return
        self._station = Station(membership, rank)
        self._silence_s = membership.silence_s
        self._store = store.clone()
        # An ordinary end of the process waits for whoever waits for the store.
        self._store.set_timeout(timedelta(seconds=self._silence_s))
        self._leaving = Event()
        self._speak(0)
        self._gloo.barrier().wait()
        self._ended = False
        self._news: list[Word] | None = None
        self._unheard = ""
        Thread(
            target=self._listen,
            name="aggregation-listen",
            daemon=True,
        ).start()
        self._watcher = Thread(
            target=self._watch,
            name="aggregation-watch",
            daemon=True,
        )
        self._watcher.start()

    def getBackendName(self) -> str:  # noqa: N802
        return "echelon"

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        op = opts.reduceOp if opts is not None else ReduceOp.SUM
        reason = self._why_not(tensors, op)
        if reason:
            self._say("allreduce", reason)
            if opts is not None:
                return self._gloo.allreduce(tensors, opts)
            return self._gloo.allreduce(tensors)
        (tensor,) = tensors

        def write(collective: Collective) -> None:
            _write(tensor, collective.result)

        return self._begin(all_reduce(_flat(tensor)), write, tensors)

    def reduce_scatter(
        self,
        outputs: list[torch.Tensor],
        inputs: list[list[torch.Tensor]],
        opts: Any,
    ) -> Work:
        parts = inputs[0]
        reason = self._why_not(parts, opts.reduceOp, len(parts))
        sizes = {part.numel() for part in parts}
        if not reason and len(sizes) > 1:
            reason = "its parts have several sizes"
        if reason:
            self._say("reduce_scatter", reason)
            return self._gloo.reduce_scatter(outputs, inputs, opts)
        values = np.concatenate([_flat(part) for part in parts])
        return self._scatter(outputs[0], values)

    def _reduce_scatter_base(
        self,
        output: torch.Tensor,
        values: torch.Tensor,
        opts: Any,
    ) -> Work:
        reason = self._why_not([values], opts.reduceOp)
        if reason:
            self._say("reduce_scatter", reason)
            return self._gloo._reduce_scatter_base(output, values, opts)  # noqa: SLF001
        return self._scatter(output, _flat(values))

    reduce_scatter_single = _reduce_scatter_base

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        if self._station is None or len(tensors) != 1 or not _is_plain(tensors[0]):
            self._say("broadcast", "only dense tensors of the CPU, one at a time")
            return self._gloo.broadcast(tensors, opts)
        (tensor,) = tensors
        flat = tensor.detach().contiguous().view(-1)
        data = flat.view(torch.uint8).numpy()
        values = np.zeros(-(-data.size // 4), np.int32)
        values.view(np.uint8)[: data.size] = data

        def write(collective: Collective) -> None:
            if self._rank != opts.rootRank:
                received = collective.result.view(np.uint8)[: data.size]
                values_of_root = torch.from_numpy(received).view(tensor.dtype)
                tensor.detach().copy_(values_of_root.view(tensor.shape))

        collective = broadcast(values, self._rank == opts.rootRank)
        return self._begin(collective, write, tensors)

    def shutdown(self) -> None:
        """Leave the group, when all have left: until then others may need this worker's results."""
        station = self._station
        self._station = None
        if station is None:
            return
        self._leaving.set()
        self._watcher.join()
        if self._ended:
            station.close()
            return
        with suppress(RuntimeError):  # the process that holds the store has ended
            self._speak(station.submitted, left=True)
            until = monotonic() + self._silence_s
            while monotonic() < until and not self._all_left():
                self._leaving.clear()
                self._leaving.wait(0.01)
            self._store.add("gone", 1)
            # The holder of the store goes last.
            if self._rank == 0:
                while monotonic() < until and self._store.add("gone", 0) < self._size:
                    self._leaving.wait(0.01)
        station.close()

    def _all_left(self) -> bool:
        return all(word.left for word in self._words())

    # -- ways through the network ------------------------------------------------------------------

    def _scatter(self, output: torch.Tensor, values: Any) -> Work:
        def write(collective: Collective) -> None:
            _write(output, collective.result)

        collective = reduce_scatter(values, self._rank, self._size)
        return self._begin(collective, write, [output])

    def _begin(
        self,
        collective: Collective,
        write: Callable[[Collective], None],
        tensors: list[torch.Tensor],
    ) -> Work:
        assert self._station is not None
        began: Any = _Future()

        def end(future: Any) -> list[torch.Tensor]:
            # An error becomes one of the future that this is a callback of, which C++ then sees,
            # too.
            error = future.value()
            if error is not None:
                raise error
            write(collective)
            bound = collective.bound
            if bound:
                _log.debug("a sum of %d values is off by at most %.3g", collective.size, bound)
            return tensors

        ended = began.then(end)
        self._station.submit(collective, began.set_result, self.epoch)
        return _Ended(ended)

    def _why_not(
        self,
        tensors: Sequence[torch.Tensor],
        op: Any,
        count: int = 1,
    ) -> str:
        """Return why the network cannot add these up; empty if it can."""
        if self._station is None:
            return "the group has no tree"
        if op != ReduceOp.SUM:
            return "the network only adds"
        if len(tensors) != count or not all(_is_plain(tensor) for tensor in tensors):
            return "only dense tensors of the CPU, one at a time"
        if any(tensor.dtype not in _NUMBERS for tensor in tensors):
            return f"values of {tensors[0].dtype} (the network adds float32 and int32)"
        return ""

    def _say(self, operation: str, reason: str) -> None:
        if operation + reason not in self._said:
            self._said.add(operation + reason)
            _log.warning("%s goes through Gloo: %s", operation, reason)

    # -- the others --------------------------------------------------------------------------------

    def _speak(
        self,
        begun: int,
        left: bool = False,
        beat: int = 0,
    ) -> None:
        word = Word(beat, begun, left)
        self._store.set(f"word/{self._rank}", word.text())

    def _words(self) -> list[Word]:
        keys = [f"word/{rank}" for rank in range(self._size)]
        texts = self._store.multi_get(keys)
        return [Word.read(text.decode()) for text in texts]

    def _listen(self) -> None:
        """Say that this process lives, and hear the others.

        Without a network, the store never answers.
        """
        station = self._station
        beat = 0
        assert station is not None
        while not self._leaving.wait(self._silence_s / _BEATS):
            beat += 1
            try:
                self._speak(station.submitted, beat=beat)
                self._news = self._words()
            except RuntimeError as error:
                self._unheard = f" ({str(error).splitlines()[0]})"
                return

    def _watch(self) -> None:
        """End what waits for a process that does not live."""
        station = self._station
        assert station is not None
        presence = Presence(self._silence_s)
        missed = 0
        while not self._leaving.wait(self._silence_s / _BEATS):
            words = self._news
            self._news = None
            missed += 1
            if words is not None or not station.busy:
                missed = 0
            if not station.busy:
                presence.stop()
                continue
            now = monotonic()
            cause = None
            if words is not None:
                cause = presence.cause(words, self._rank, now - station.progress_at, now)
            elif missed >= _BEATS or self._unheard:
                cause = (
                    "the store does not answer: the process of rank 0, or the network to it, is"
                    f" gone{self._unheard}"
                )
            if cause is None and now - station.progress_at > self._timeout_s:
                cause = f"no result has come for {self._timeout_s:g} s, the group's timeout"
            if cause is not None:
                _log.error("the collectives of rank %d end: %s", self._rank, cause)
                self._ended = True
                station.fail(RunError(cause))
                return


def _forward(name: str) -> Callable[..., Any]:
    def call(self: AggregationGroup, *arguments: Any, **named: Any) -> Any:
        self._say(name, "the network does not do it")
        return getattr(self._gloo, name)(*arguments, **named)

    call.__name__ = name
    return call


for _name in (
    "allgather",
    "_allgather_base",
    "all_gather_single",
    "allgather_coalesced",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "scatter",
    "send",
):
    setattr(AggregationGroup, _name, _forward(_name))


def _is_plain(tensor: torch.Tensor) -> bool:
    return bool(tensor.layout == torch.strided and tensor.device.type == "cpu")


def _flat(tensor: torch.Tensor) -> Any:
    return tensor.detach().contiguous().view(-1).numpy()


def _write(tensor: torch.Tensor, values: Any) -> None:
    source = torch.from_numpy(values).view(tensor.shape)
    tensor.detach().copy_(source)


class Aggregation:
    """The state of `aggregate`: a group that aggregates.

    It is the default one if that is, and otherwise its own.
    """

    def __init__(self, group: AggregationGroup | None = None) -> None:
        present = group or dist.group.WORLD
        if not isinstance(present, AggregationGroup):
            store = PrefixStore("echelon", dist.distributed_c10d._get_default_store())  # noqa: SLF001
            timeout = dist.distributed_c10d.default_pg_timeout
            present = AggregationGroup(store, dist.get_rank(), dist.get_world_size(), timeout)
        self.group = present

    def close(self) -> None:
        """Leave the group. The default group is left by `destroy_process_group`, too."""
        self.group.shutdown()


def aggregate(state: Aggregation, bucket: dist.GradBucket) -> Any:
    """Return the mean of a bucket of gradients, as a hook: `model.register_comm_hook(Aggregation(),
    aggregate)`.

    Packets then say which iteration they belong to.
    """
    group = state.group
    tensor = bucket.buffer()
    tensor.div_(group.size())
    work = group.allreduce([tensor])
    if bucket.is_last():
        group.epoch += 1
    return work.get_future().then(lambda ended: ended.value()[0])


# DistributedDataParallel compares the annotations themselves, which are texts in this module.
aggregate.__annotations__ = {"bucket": dist.GradBucket}


dist.Backend.register_backend("echelon", AggregationGroup, devices=["cpu"])
