"""A switch that executes Tofino assembly.

The assembly is the `.bfa` file that p4c's Tofino back end writes for one pipe of Tofino 1.

The format is that of the assembler `bf-asm` in p4c, whose sources are the reference for every
section's meaning. Tables are matched by value, not through the memories' hash ways; everything else
happens on the containers of the packet header vector (PHV) that the compiler allocated.
"""

from __future__ import annotations

from echelon_tofino_model.emulator.pipeline import TofinoSwitch
from echelon_tofino_model.emulator.program import TofinoProgram, load_assembly

__all__ = ["TofinoProgram", "TofinoSwitch", "load_assembly"]
