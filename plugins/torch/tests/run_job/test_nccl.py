"""The options that PyTorch hands to NCCL, with PyTorch's own classes and without a device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from echelon_torch import group_classes
from echelon_torch.run_job.answering import answering
from tests.needs import needs, skip

pytestmark = needs("torch")
CLASS = 162
UNSET = -(2**31)


class Answers:
    """What run-job answers."""

    def answer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        assert "say" not in message, message
        return {"traffic_class": CLASS, "tos": {}, "note": ""}


class MadeError(Exception):
    """A group would have been made, for which a device is needed."""


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Have process groups ask for classes, and yield the options with which they would be made."""
    from torch.distributed import distributed_c10d

    if not distributed_c10d.is_nccl_available():
        skip("torch", "this PyTorch has no NCCL (install one for CUDA; it needs no device)")
    options: list[Any] = []

    def helper(*_: object, backend_options: Any = None, **__: object) -> None:
        options.append(backend_options)
        raise MadeError

    monkeypatch.setattr(distributed_c10d, "_new_process_group_helper", helper)
    for name in ("init_process_group", "new_group", "split_group"):
        monkeypatch.setattr(distributed_c10d, name, getattr(distributed_c10d, name))
    with answering(Answers()) as path:  # type: ignore[arg-type]
        monkeypatch.setenv(group_classes.SOCKET, str(path))
        group_classes.install(distributed_c10d)
        yield options


def make(**arguments: Any) -> None:
    import torch
    from torch.distributed import distributed_c10d

    with pytest.raises(MadeError):
        distributed_c10d.init_process_group(
            store=torch.distributed.HashStore(), rank=0, world_size=2, **arguments
        )


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl", None])
def test_the_class_is_an_option_of_the_group(handed: list[Any], backend: str | None) -> None:
    make(backend=backend)
    (options,) = handed
    assert options.config.traffic_class == CLASS


def test_options_of_the_program_are_copied(handed: list[Any]) -> None:
    from torch.distributed import ProcessGroupNCCL

    own = ProcessGroupNCCL.Options(is_high_priority_stream=True)
    assert own.config.traffic_class == UNSET, "NCCL_CONFIG_UNDEF_INT"
    own.config.max_ctas = 4
    make(backend="nccl", pg_options=own)
    (options,) = handed
    assert (options.config.traffic_class, options.config.max_ctas) == (CLASS, 4)
    assert options.is_high_priority_stream
    assert own.config.traffic_class == UNSET
    assert copy.deepcopy(options).config.traffic_class == CLASS


def test_a_group_of_gloo_gets_none(handed: list[Any]) -> None:
    make(backend="gloo")
    assert handed == [None]
