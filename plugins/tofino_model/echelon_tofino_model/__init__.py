"""Tofino without the chip: what softswitch needs to be one.

`bfruntime` serves BF Runtime, `emulator` executes the assembly that p4c writes, and `virtual` is a
fabric of such switches in virtual time. Begin with `emulator/pipeline.py`.
"""
