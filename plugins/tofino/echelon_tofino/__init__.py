"""Tofino: the target of Echelon by BF Runtime, and what softswitch needs to be one.

`target` is what the controller uses. `bfruntime` serves BF Runtime, and `emulator` executes the assembly that p4c
writes. Begin with `target/session.py` and `emulator/pipeline.py`.
"""
