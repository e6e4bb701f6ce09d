"""The way of one packet through a switch, step by step.

The interpreter of a switch made with ``Switch(program, tracer=...)`` reports every step as an
:class:`~softswitch.trace.events.Event`; :mod:`softswitch.trace.text` turns events into text.
"""

from .events import Event, Tracer
from .text import Span, TraceText, plain

__all__ = ["Event", "Span", "TraceText", "Tracer", "plain"]
