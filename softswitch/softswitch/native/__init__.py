"""The native engine: a P4 program as C, made from the same intermediate form as the Python engine's code; the traffic
manager in C; threads in C that move packets between real interfaces; and virtual time in C.

A program that needs something that it does not have is refused with the reason, and Python runs it.
"""

from .engine import NativeError, NativeProgram, compile_native

__all__ = ["NativeError", "NativeProgram", "compile_native"]
