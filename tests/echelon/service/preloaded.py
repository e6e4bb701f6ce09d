"""What every forked switch and daemon would otherwise do for itself at its start, done once in the
process that they are forked from (tests/echelon/service/lab.py imports it there, last).
"""

from __future__ import annotations

import gc
from contextlib import suppress
from functools import cache

from ctoolchain import ToolchainError
from echelon.model.p4program import program
from echelon.switches.southbound.codec import schema_of
from softswitch.cli import running
from softswitch.native.kept import load_kept
from softswitch.native.wires import load_core

compiled = program()
binary = compiled.binary.read_bytes()
# Both keep what they have read last.
schema_of(compiled.p4info.read_text(encoding="utf-8"), binary)
load_kept(binary, "p4_device_config")

# To parse what the library declares takes a third of a switch's start. Without a compiler, each
# switch says so for itself.
load_once = cache(load_core)
vars(running)["load_core"] = load_once
with suppress(ToolchainError):
    load_once()

# A switch collects garbage once at its start. It would look at all that was imported, and so copy
# the memory that it shares with the other processes.
gc.collect()
gc.freeze()
