"""From BMv2 JSON to :mod:`softswitch.ir`, with every reference, type and width checked on the way."""

from .program import load_ir

__all__ = ["load_ir"]
