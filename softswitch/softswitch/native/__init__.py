"""The native engine: a P4 program as C, made from the form that the interpreter runs.

The traffic manager, threads that move packets between real interfaces, and virtual time are in C,
too.

A program that needs something that it does not have is refused with the reason, and the interpreter
runs it.
"""

from .engine import NativeError, NativeProgram, compile_native

__all__ = ["NativeError", "NativeProgram", "compile_native"]
