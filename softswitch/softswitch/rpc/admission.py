"""The clients that may call a server, by the names in their certificates.

The handshake has proved that a client's authority is the right one. Here it is told from others of
the same authority, in each call and before its message is parsed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]

from softswitch.rpc.rereading import ChangingFiles

__all__ = ["AllowedClients", "GuardedHandler"]

_log = logging.getLogger("softswitch.tls")

_LOOK_EVERY_S = 1.0
"""The time between two looks at whether files of names have changed."""

_LINE_EVERY_S = 1.0
"""The time between two lines about refused calls: a stranger that calls all the time must not fill
the disk. The next line says how many calls had none."""

_FIRST_MESSAGE_S = 0.05
"""The time that a refused stream has for its client's first message.

gRPC's asynchronous client that cannot send it any more forgets why, and says "Internal error from
Core": without the time, in 5 of 120 refusals.
"""

_FEW = 3
"""The number of a certificate's names that a line quotes; a certificate may have hundreds."""

_NAME_CHARACTERS = 64
"""The characters of a name that a line quotes: as many as the common name may have."""


class AllowedClients:
    """The names of certificates with which clients may call.

    Args:
        words: names, and @FILE for a file with a name a line, where # begins a comment. A file is
            read again when it changes.
        clock: the current time in seconds.

    Raises:
        ValueError, OSError: a file cannot be read, or there is no name at all.
    """

    def __init__(self, words: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._named = {word for word in words if not word.startswith("@")}
        self._files = [Path(word[1:]) for word in words if word.startswith("@")]
        self._clock = clock
        self._changing = ChangingFiles("allowed clients", self._files, self._read)
        self._look_at_s = clock() + _LOOK_EVERY_S
        self._refusals = _RefusalLines(clock)

    def check(self, context: Any, pause_s: float = 0.0) -> None:
        """End the call of a client that has none of the names, with PERMISSION_DENIED.

        It ends after a pause.
        """
        if self._clock() >= self._look_at_s:
            self._look_at_s = self._clock() + _LOOK_EVERY_S
            self._changing.renew()
        allowed = self._changing.content
        # gRPC hands these over ten times faster than all that it knows of the certificate. They are
        # its alternative names, or its common name where it has no others.
        if not allowed.isdisjoint(context.peer_identities() or ()):
            return
        names = _certified_names(context)
        if not allowed.isdisjoint(names):
            return
        time.sleep(pause_s)
        self._refuse(context, names)

    def _refuse(self, context: Any, names: Sequence[bytes]) -> NoReturn:
        quoted = _quoted(names)
        self._refusals.note(context.peer(), quoted)
        context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"this switch does not take calls with the certificate of {quoted};"
            " its --allow-client names those that may call",
        )
        raise AssertionError("gRPC's abort always raises")

    def _read(self) -> frozenset[bytes]:
        names = set(self._named)
        for path in self._files:
            names |= _names_in(path)
        if not names:
            files = ", ".join(map(str, self._files))
            raise ValueError(
                f"--allow-client {files}: there is no name in it, so nobody could call"
            )
        return frozenset(name.encode() for name in names)


class _RefusalLines:
    """The lines about refused calls, which are counted if they come too fast."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next_at_s = clock()
        self._unsaid = 0

    def note(self, peer: str, names: str) -> None:
        with self._lock:
            now_s = self._clock()
            if now_s < self._next_at_s:
                self._unsaid += 1
                return
            self._next_at_s = now_s + _LINE_EVERY_S
            unsaid = self._unsaid
            self._unsaid = 0
        more = f" ({unsaid} more since the last line)" if unsaid else ""
        _log.warning(
            "softswitch: a call of %s with the certificate of %s was refused: no --allow-client"
            " names it%s",
            peer,
            names,
            more,
        )


class GuardedHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A service whose calls are checked before their messages are parsed."""

    def __init__(self, service: grpc.GenericRpcHandler, allowed: AllowedClients) -> None:
        self._service = service
        self._allowed = allowed
        self._guarded: dict[str, grpc.RpcMethodHandler] = {}

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler | None:
        method = handler_call_details.method
        # Only methods that exist are kept: callers choose the names of others.
        guarded = self._guarded.get(method)
        if guarded is None:
            handler = self._service.service(handler_call_details)
            if handler is None:
                return None
            guarded = self._guarded[method] = _guarded(handler, self._allowed)
        return guarded


def _guarded(handler: Any, allowed: AllowedClients) -> grpc.RpcMethodHandler:
    parse = handler.request_deserializer or bytes
    answer = handler.response_serializer
    method = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )

    # Attributes of a method say which threads serve it.
    @wraps(method)
    def serve(message: bytes, context: Any) -> Any:
        allowed.check(context)
        return method(parse(message), context)

    @wraps(method)
    def serve_stream(messages: Iterable[bytes], context: Any) -> Any:
        allowed.check(context, _FIRST_MESSAGE_S)
        return method(_parsed(messages, parse), context)

    if handler.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(serve, None, answer)
    if handler.unary_stream is not None:
        return grpc.unary_stream_rpc_method_handler(serve, None, answer)
    if handler.stream_unary is not None:
        return grpc.stream_unary_rpc_method_handler(serve_stream, None, answer)
    return grpc.stream_stream_rpc_method_handler(serve_stream, None, answer)


def _parsed(messages: Iterable[bytes], parse: Callable[[bytes], Any]) -> Iterator[Any]:
    for message in messages:
        yield parse(message)


def _certified_names(context: Any) -> list[bytes]:
    """Return the common name and the alternative names of the caller's certificate."""
    facts = context.auth_context()
    return [
        *facts.get("x509_common_name", ()),
        *facts.get("x509_subject_alternative_name", ()),
    ]


def _quoted(names: Sequence[bytes]) -> str:
    texts = []
    for name in dict.fromkeys(names):
        # A stranger chooses its name: it must not write lines of its own into a log.
        texts.append(repr(name.decode("utf-8", "replace"))[: _NAME_CHARACTERS + 2])
    if not texts:
        return "nobody (it has no name)"
    more = f" and {len(texts) - _FEW} more names" if len(texts) > _FEW else ""
    return f"{', '.join(texts[:_FEW])}{more}"


def _names_in(path: Path) -> set[str]:
    names = set()
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"--allow-client @{path}: not text: {error}") from None
    for line in lines:
        name = line.partition("#")[0].strip()
        if name:
            names.add(name)
    return names
