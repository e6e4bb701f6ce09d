"""P4 programs as they stand: a plain interpreter of :mod:`softswitch.ir`.

It is the reference for every other engine, and runs where there is none. Every name of a program is
resolved once: expressions, statements, parser states and tables become functions of a packet
(:mod:`softswitch.interpreter.packet`), which all switches that run the program share. Every step
can be followed (:mod:`softswitch.trace`).
"""

from .pipelines import Interpreter

__all__ = ["Interpreter"]
