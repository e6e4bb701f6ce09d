"""Kinds of switch. A target is one package: everything that differs between kinds of switch is in there.

`Target` says what a target brings, `TARGETS` finds them all. Nothing outside a target's package asks for its name.
"""

from __future__ import annotations

from echelon.targets.target import DEFAULT_TARGET, TARGETS, Site, Target, find_target

__all__ = ["DEFAULT_TARGET", "TARGETS", "Site", "Target", "find_target"]
