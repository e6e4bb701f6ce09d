"""The hook in a program: options for NCCL, and marks on the connections that a group opens.

Where PyTorch is not what is tested, functions with its signatures take its place: no PyTorch for
processors alone has NCCL.
"""

from __future__ import annotations

import inspect
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from echelon_torch import group_classes
from echelon_torch.run_job.answering import answering
from tests.needs import needs

UNSET = -(2**31)
MINUTE = timedelta(minutes=1)


class Config:
    """Options of NCCL's communicators."""

    def __init__(self) -> None:
        self.traffic_class = UNSET
        self.split_share = UNSET


class Options:
    """Options of a process group of NCCL."""

    def __init__(self) -> None:
        self.config = Config()
        self.is_high_priority_stream = False
        self._timeout = timedelta()


class Answers:
    """What run-job answers, and what it has heard."""

    def __init__(self) -> None:
        self.traffic_class: int | None = 162
        self.tos: dict[str, int] = {}
        self.asked: list[Mapping[str, Any]] = []
        self.lines: list[str] = []

    def answer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if "say" in message:
            self.lines.append(message["say"])
            return {}
        self.asked.append(message)
        return {"traffic_class": self.traffic_class, "tos": self.tos, "note": "a note"}


class Distributed:
    """The functions of `torch.distributed.distributed_c10d` that the hook uses."""

    ProcessGroupNCCL = SimpleNamespace(Options=Options)
    default_pg_nccl_timeout = timedelta(minutes=10)

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.options: list[Any] = []
        self.opens: Callable[[], object] = lambda: None
        self.store = SimpleNamespace(underlying_store=SimpleNamespace(port=1))

    def init_process_group(
        self,
        backend: str | None = None,
        world_size: int = -1,
        rank: int = -1,
        pg_options: Any = None,
    ) -> None:
        self._make(pg_options)

    def new_group(
        self,
        ranks: list[int] | None = None,
        timeout: timedelta | None = None,
        backend: str | None = None,
        pg_options: Any = None,
        group_desc: str | None = None,
    ) -> str:
        self._make(pg_options)
        return "group"

    def split_group(
        self,
        parent_pg: Any = None,
        split_ranks: list[list[int]] | None = None,
        timeout: timedelta | None = None,
        pg_options: Any = None,
        group_desc: str | None = None,
    ) -> None:
        self._make(pg_options)

    def get_process_group_ranks(self, group: object) -> list[int]:
        return [3, 1, 0]

    def _make(self, options: Any) -> None:
        self.options.append(options)
        self.opens()

    def is_initialized(self) -> bool:
        return True

    def is_nccl_available(self) -> bool:
        return True

    def get_rank(self) -> int:
        return 1

    def get_world_size(self) -> int:
        return 4

    def get_backend_config(self, group: object = None) -> str:
        return self.backend

    def _get_default_store(self) -> object:
        return self.store


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    heard = Answers()
    with answering(heard) as path:  # type: ignore[arg-type]
        monkeypatch.setenv(group_classes.SOCKET, str(path))
        yield heard


@pytest.fixture
def nccl(answers: Answers) -> Distributed:
    distributed = Distributed("cuda:nccl")
    group_classes.install(distributed)
    return distributed


def test_nccl_gets_the_class_as_an_option_of_the_group(answers: Answers, nccl: Distributed) -> None:
    assert nccl.new_group([1, 3], timeout=MINUTE, group_desc="data") == "group"
    (options,) = nccl.options
    assert options.config.traffic_class == 162
    # PyTorch warns of options with another time-out than the group's.
    assert vars(options)["_timeout"] == MINUTE
    assert answers.asked == [
        {"rank": 1, "world": 4, "ranks": [1, 3], "description": "data", "nccl": True}
    ]


def test_the_first_group_is_asked_for_before_it_is_made(
    answers: Answers, nccl: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    nccl.init_process_group("nccl")
    nccl.init_process_group(rank=2, world_size=3)
    assert [each.config.traffic_class for each in nccl.options] == [162, 162]
    assert [(each["rank"], each["ranks"]) for each in answers.asked] == [
        (3, [0, 1, 2, 3]),
        (2, [0, 1, 2]),
    ]


def test_options_of_the_program_stay_as_they_are(answers: Answers, nccl: Distributed) -> None:
    own = Options()
    own.is_high_priority_stream = True
    nccl.new_group([0, 1], pg_options=own)
    assert own.config.traffic_class == UNSET, "the program may give them to other groups"
    assert nccl.options[0].config.traffic_class == 162
    assert nccl.options[0].is_high_priority_stream
    own.config.traffic_class = 7
    nccl.new_group([0, 1], pg_options=own)
    assert nccl.options[1].config.traffic_class == 7, "the program has set a class"
    of_another_backend = object()
    nccl.new_group([0, 1], pg_options=of_another_backend)
    assert nccl.options[2] is of_another_backend


def test_groups_without_a_class_or_without_nccl_get_no_options(answers: Answers) -> None:
    distributed = Distributed("cpu:gloo")
    group_classes.install(distributed)
    distributed.new_group([0, 1])
    distributed.new_group([0, 1], backend="nccl")
    answers.traffic_class = None
    distributed.new_group([0, 1], backend="nccl")
    distributed.new_group([2, 3])
    assert [each is None for each in distributed.options] == [True, False, True, True]
    assert len(answers.asked) == 3, "this rank is not in the last group"


def test_a_part_of_a_group_does_not_inherit_its_class(
    answers: Answers, nccl: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_parent = Options()
    of_parent.config.traffic_class = 7
    of_parent.is_high_priority_stream = True
    parent = SimpleNamespace(_get_backend=lambda _device: SimpleNamespace(options=of_parent))
    torch = ModuleType("torch")
    torch.accelerator = SimpleNamespace(  # type: ignore[attr-defined]
        is_available=lambda: True, current_accelerator=lambda: "cuda"
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    # Ranks of parts are places in the group.
    nccl.split_group(parent, [[0, 2], [1]])
    assert answers.asked[0]["ranks"] == [1]
    answers.traffic_class = None
    nccl.split_group(parent, [[0, 1]], group_desc="data")
    assert (answers.asked[1]["ranks"], answers.asked[1]["description"]) == ([3, 1], "data")
    nccl.split_group(parent, [[0, 2]])
    assert [each and each.config.traffic_class for each in nccl.options] == [162, UNSET, None]
    assert nccl.options[0].is_high_priority_stream
    assert of_parent.config.traffic_class == 7


def test_what_cannot_be_given_to_nccl_is_said(
    answers: Answers, nccl: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older(Options):
        def __init__(self) -> None:
            super().__init__()
            del self.config.traffic_class

    monkeypatch.setattr(Distributed, "ProcessGroupNCCL", SimpleNamespace(Options=Older))
    nccl.new_group([0, 1])
    assert nccl.options == [None]
    assert "PyTorch 2.8 with NCCL 2.26" in answers.lines[0]


def test_without_run_job_the_program_goes_on(
    nccl: Distributed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(group_classes.SOCKET, "/nowhere")
    alone = Distributed("cuda:nccl")
    group_classes.install(alone)
    alone.new_group([0, 1])
    assert alone.options == [None]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("echelon run-job: a process group has no class: FileNotFoundError")


class Connections:
    """Connections that open while a group is made."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.made: dict[str, tuple[socket.socket, socket.socket]] = {}

    def open(self, name: str, family: socket.AddressFamily, address: str) -> int:
        listening = self._stack.enter_context(socket.create_server((address, 0), family=family))
        ours = self._stack.enter_context(socket.socket(family))
        ours.connect(listening.getsockname())
        theirs = self._stack.enter_context(listening.accept()[0])
        self.made[name] = ours, theirs
        return int(listening.getsockname()[1])

    def tos(self, name: str) -> tuple[int, ...]:
        return tuple(each.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) for each in self.made[name])


def test_connections_that_a_group_of_gloo_opens_are_marked_at_both_ends(answers: Answers) -> None:
    distributed = Distributed("cpu:gloo,cuda:nccl")
    group_classes.install(distributed)
    with ExitStack() as stack:
        connections = Connections(stack)

        def open_all() -> None:
            connections.open("data", socket.AF_INET, "127.0.0.1")
            connections.open("elsewhere", socket.AF_INET, "127.0.0.9")
            port = connections.open("store", socket.AF_INET, "127.0.0.1")
            distributed.store.underlying_store.port = port
            for pair in socket.socketpair():
                stack.enter_context(pair)

        connections.open("before", socket.AF_INET, "127.0.0.1")
        distributed.opens = open_all
        answers.tos = {"127.0.0.1": 160}
        # A time-out of the program must not change how the sockets of a library block.
        socket.setdefaulttimeout(5)
        stack.callback(socket.setdefaulttimeout, None)
        distributed.new_group([0, 1])
        assert connections.tos("data") == (160, 160)
        # Of this one, the other end has an address of the group's hosts.
        assert connections.tos("elsewhere") == (0, 160)
        assert connections.tos("before") == connections.tos("store") == (0, 0)
        assert answers.lines == []


def test_connections_to_other_addresses_are_not_marked_and_it_is_said(answers: Answers) -> None:
    distributed = Distributed("cpu:gloo")
    group_classes.install(distributed)
    with ExitStack() as stack:
        connections = Connections(stack)
        distributed.opens = lambda: connections.open("data", socket.AF_INET, "127.0.0.1")
        answers.tos = {"10.0.0.2": 160}
        distributed.new_group([0, 1])
        assert connections.tos("data") == (0, 0)
    (line,) = answers.lines
    assert "127.0.0.1" in line
    assert "10.0.0.2" in line
    assert "GLOO_SOCKET_IFNAME" in line


def test_connections_that_gloo_opens_later_are_not_marked_and_it_is_said(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", "yes")
    distributed = Distributed("cpu:gloo")
    group_classes.install(distributed)
    answers.tos = {"127.0.0.1": 160}
    distributed.new_group([0, 1])
    (line,) = answers.lines
    assert "TORCH_GLOO_LAZY_INIT" in line


@needs("torch")
def test_pytorch_has_the_arguments_that_the_hook_uses() -> None:
    from torch.distributed import distributed_c10d

    used = {
        "init_process_group": {"backend", "rank", "world_size", "pg_options"},
        "new_group": {"ranks", "backend", "timeout", "pg_options", "group_desc"},
        "split_group": {"parent_pg", "split_ranks", "timeout", "pg_options", "group_desc"},
    }
    for name, arguments in used.items():
        signature = inspect.signature(getattr(distributed_c10d, name))
        assert arguments <= signature.parameters.keys(), name
    for name in ("get_backend_config", "is_nccl_available", "default_pg_nccl_timeout"):
        assert hasattr(distributed_c10d, name)
    assert hasattr(distributed_c10d, "_get_default_store")
