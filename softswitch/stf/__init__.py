"""Conformance tests in STF, the test language of p4c, run against :class:`softswitch.Switch`."""

from .names import read_aliases
from .parser import StfError, parse
from .runner import Failure, Result, run

__all__ = ["Failure", "Result", "StfError", "parse", "read_aliases", "run"]
