"""The native engine: a P4 program as C, made from the intermediate form that the interpreter runs;
the traffic manager in C; threads in C that move packets between real interfaces; and virtual time
in C.

A program that needs something that it does not have is refused with the reason, and the interpreter
runs it.
"""

from .engine import NativeError, NativeProgram, compile_native

__all__ = ["NativeError", "NativeProgram", "compile_native"]
