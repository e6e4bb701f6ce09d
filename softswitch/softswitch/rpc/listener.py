"""A gRPC server at an address: it starts, says where it listens, and stops."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import grpc  # type: ignore[import-untyped]

from softswitch.rpc.admission import AllowedClients, GuardedHandler
from softswitch.rpc.calls import RECEIVING_S, BoundedHandler
from softswitch.rpc.endings import OPTIONS
from softswitch.rpc.places import Places

__all__ = ["Listener"]


_MESSAGE_BYTES = 64 << 20
"""The most bytes of a message, where the server does not say: room for the files of a program."""


class Listener:
    """A gRPC server of some services.

    Args:
        services: the handlers of each service.
        address: "host:port"; port 0 takes a free one.
        threads: the number of RPCs served at a time; an open stream counts as one.
        name: what its threads are called.
        credentials: the TLS that clients must speak (`grpc.ssl_server_credentials`); None means
            plain text.
        allowed: the clients that may call, by their certificates; None means all.
        message_bytes: the most bytes of a message that a client sends; gRPC refuses a larger one
            with RESOURCE_EXHAUSTED before it takes memory.

    Raises:
        OSError: the address cannot be used.
    """

    def __init__(
        self,
        services: Iterable[grpc.GenericRpcHandler],
        address: str,
        *,
        threads: int,
        name: str,
        credentials: grpc.ServerCredentials | None = None,
        allowed: AllowedClients | None = None,
        message_bytes: int = _MESSAGE_BYTES,
    ) -> None:
        self._address = address
        self._grpc = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix=name),
            options=[*OPTIONS, ("grpc.max_receive_message_length", message_bytes)],
        )
        if allowed is not None:
            services = [GuardedHandler(service, allowed) for service in services]
        # The other half of the threads tells those who find no place.
        places = Places(max(1, threads // 2), patience_s=RECEIVING_S)
        services = [BoundedHandler(service, places) for service in services]
        self._grpc.add_generic_rpc_handlers(tuple(services))
        self.port: int
        try:
            if credentials is None:
                self.port = self._grpc.add_insecure_port(address)
            else:
                self.port = self._grpc.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(
                f"cannot listen on {address}: {error}; choose another address or port 0"
            ) from None

    @property
    def address(self) -> str:
        """Return the address that clients connect to.

        The host is as given, the port as bound; a Unix socket ("unix:PATH") is as given.
        """
        if self._address.startswith("unix:"):
            return self._address
        host, _, _ = self._address.rpartition(":")
        return f"{host}:{self.port}"

    def start(self) -> None:
        """Start to serve."""
        self._grpc.start()

    def stop(self, grace_s: float | None = None) -> None:
        """End all streams, after `grace_s` at most, and wait until they have ended."""
        self._grpc.stop(grace_s).wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()
