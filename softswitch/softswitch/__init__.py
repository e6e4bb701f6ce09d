"""An embedded P4Runtime switch that runs what p4c emits for v1model."""

from .errors import (
    BadEntry,
    DuplicateEntry,
    NoSuchEntry,
    ProgramError,
    SoftswitchError,
    TableError,
    TableFull,
)
from .passing import CloneSession, Departure, Queued
from .stateful import Counter, Meter, MeterCell, MeterConfig, Register
from .switch import Program, Stats, Switch, load_program
from .tables import ActionProfile, Entry, KeyElement, Table
from .valuesets import ValueElement, ValueSet

__all__ = [
    "ActionProfile",
    "BadEntry",
    "CloneSession",
    "Counter",
    "Departure",
    "DuplicateEntry",
    "Entry",
    "KeyElement",
    "Meter",
    "MeterCell",
    "MeterConfig",
    "NoSuchEntry",
    "Program",
    "ProgramError",
    "Queued",
    "Register",
    "SoftswitchError",
    "Stats",
    "Switch",
    "Table",
    "TableError",
    "TableFull",
    "ValueElement",
    "ValueSet",
    "load_program",
]
