"""The native engine: a P4 program as C, made from the same intermediate form as the Python engine's code; the traffic
manager in C; and threads in C that move packets between real interfaces.

A program that needs something that it does not have is refused with the reason, and Python runs it.
"""

from .engine import NativeError, NativeProgram, compile_native

__all__ = ["NativeError", "NativeProgram", "compile_native"]
