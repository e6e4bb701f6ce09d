"""The compiler from :class:`~softswitch.ir.ProgramIR` to Python source specialised to the program.

The source is one function, ``build(sw)``, that binds a switch's tables and arrays and returns its ``ingress`` and
``egress``. A packet's header fields and metadata are local variables of these functions. No packet needs a look-up by
name.
"""

from .module import compile_program

__all__ = ["compile_program"]
