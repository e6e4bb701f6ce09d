"""Messages about programs that ended: they give the cause, not the launcher's words about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon_torch.programs.launching import _cause

TRACEBACK = """\
W1127 torch/distributed/run.py:852]
{0}Traceback (most recent call last):
{0}  File "train.py", line 1, in <module>
{0}    from device import Device
{0}ModuleNotFoundError: No module named 'device'
E1127 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1)
Traceback (most recent call last):
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
"""


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_the_error_of_the_program_is_said_and_not_that_of_torchrun(
    tmp_path: Path, prefix: str
) -> None:
    log = tmp_path / "log"
    log.write_text(TRACEBACK.format(prefix))
    assert _cause(log) == f"{prefix}ModuleNotFoundError: No module named 'device'"


def test_a_program_without_an_error_has_no_cause(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("step 1\nNo Error: here\n")
    assert _cause(tmp_path / "log") is None
    assert _cause(tmp_path / "nowhere") is None
