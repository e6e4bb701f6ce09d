"""The loader from BMv2 JSON to :mod:`softswitch.ir`.

It checks every reference, type and width.
"""

from .program import load_ir

__all__ = ["load_ir"]
