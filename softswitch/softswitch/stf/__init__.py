"""Conformance tests in STF, the test language of p4c, run against :class:`softswitch.Switch`."""

from .commands import StfError
from .expectations import Failure
from .names import read_aliases
from .parser import parse
from .run import Result
from .runner import Run, run

__all__ = ["Failure", "Result", "Run", "StfError", "parse", "read_aliases", "run"]
