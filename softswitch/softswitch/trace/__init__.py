"""The way of one packet through a switch, step by step.

A switch made with ``Switch(program, tracer=...)`` runs a variant of the generated code that reports every step as an
:class:`~softswitch.trace.events.Event`; :mod:`softswitch.trace.text` turns events into text. The two variants come from
one generator, and the reported values are those that the code uses.
"""

from .events import Event, Tracer
from .recorder import Recorder
from .text import Span, TraceText, plain

__all__ = ["Event", "Recorder", "Span", "TraceText", "Tracer", "plain"]
