"""Kinds of switch. A target is one package: everything that differs between kinds of switch is in there.

`Target` says what a target brings, `TARGETS` finds them all. Nothing outside a target's package asks for its name.
"""

from __future__ import annotations

from echelon.targets.registry import TARGETS, find_target
from echelon.targets.target import DEFAULT_TARGET, Site, Target

__all__ = ["DEFAULT_TARGET", "TARGETS", "Site", "Target", "find_target"]
