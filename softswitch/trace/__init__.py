"""One packet's way through a switch, step by step.

A switch made with ``Switch(program, tracer=...)`` runs a variant of the generated code that reports every step as an
:class:`~softswitch.trace.events.Event`; :mod:`softswitch.trace.text` puts events into words. The two variants come from
one generator, and what is reported are the values that the code has in its hands.
"""

from .events import Event, Tracer
from .recorder import Recorder
from .text import Span, TraceText, plain

__all__ = ["Event", "Recorder", "Span", "TraceText", "Tracer", "plain"]
