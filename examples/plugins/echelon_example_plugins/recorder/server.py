"""`echelon-recorder`: serves P4Runtime, and appends every change to a file as a line of JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
from finsy.proto import p4r, p4r_grpc

from echelon_example_plugins.recorder.switch import RecordedSwitch, RefusedError

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_STREAMS = 16
"""The most controllers that may be connected at a time."""


class Service(p4r_grpc.P4RuntimeServicer):
    """The P4Runtime service of one switch."""

    def __init__(self, switch: RecordedSwitch) -> None:
        self._switch = switch
        self._lock = threading.Lock()

    def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        with self._turn(context):
            self._switch.write(request)
        return p4r.WriteResponse()

    def Read(self, request: p4r.ReadRequest, context: Any) -> Iterator[p4r.ReadResponse]:
        with self._turn(context):
            response = p4r.ReadResponse(entities=self._switch.read(request))
        yield response

    def SetForwardingPipelineConfig(
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.SetForwardingPipelineConfigResponse:
        with self._turn(context):
            self._switch.set_pipeline(request)
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.GetForwardingPipelineConfigResponse:
        with self._turn(context):
            return p4r.GetForwardingPipelineConfigResponse(config=self._switch.pipeline(request))

    def StreamChannel(
        self, request_iterator: Iterator[p4r.StreamMessageRequest], context: Any
    ) -> Iterator[p4r.StreamMessageResponse]:
        for request in request_iterator:
            # A recorder sees no packets, so there is no digest to acknowledge and nothing to send.
            if request.HasField("arbitration"):
                with self._turn(context):
                    answer = self._switch.arbitrate(request.arbitration)
                yield p4r.StreamMessageResponse(arbitration=answer)

    def Capabilities(
        self, request: p4r.CapabilitiesRequest, context: Any
    ) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.4.0")

    @contextmanager
    def _turn(self, context: Any) -> Iterator[None]:
        """Keep other calls out, and end this one with the code of a refusal."""
        with self._lock:
            try:
                yield
            except RefusedError as error:
                context.abort(_CODES[error.code], str(error))


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    options = _options().parse_args([word for word in sys.argv[1:] if word != "--"])
    signals = {signal.SIGTERM, signal.SIGINT}
    # Before any thread exists, so that none of them takes the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        output = sys.stdout if options.record is None else options.record.open("a")
    except OSError as error:
        sys.exit(f"echelon-recorder: --record: {options.record}: {error.strerror} (check the path)")

    def record(change: dict[str, Any]) -> None:
        # One write for each line: the queue driver appends to the same file.
        output.write(f"{json.dumps(change)}\n")
        output.flush()

    server = grpc.server(
        ThreadPoolExecutor(2 * _STREAMS),
        options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)],
    )
    service = Service(RecordedSwitch(options.device_id, record))
    p4r_grpc.add_P4RuntimeServicer_to_server(service, server)
    try:
        server.add_insecure_port(options.grpc_server_addr)
    except RuntimeError:
        sys.exit(
            f"echelon-recorder: cannot listen on {options.grpc_server_addr} (choose another"
            " address)"
        )
    server.start()
    print(f"P4Runtime at {options.grpc_server_addr}, device {options.device_id}", file=sys.stderr)
    signal.sigwait(signals)
    server.stop(None).wait()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="A switch that records what is written to it, and forwards nothing."
    )
    parser.add_argument(
        "--record",
        type=Path,
        help="the file to append to (default: standard output)",
        metavar="FILE",
    )
    parser.add_argument(
        "--device-id", type=int, default=1, help="P4Runtime's device id (default: 1)", metavar="N"
    )
    parser.add_argument(
        "--grpc-server-addr", default="127.0.0.1:9559", help="where to listen", metavar="HOST:PORT"
    )
    ignored = parser.add_argument_group("for compatibility with simple_switch_grpc, without effect")
    ignored.add_argument("--no-p4", action="store_true")
    ignored.add_argument("-i", "--interface", action="append", metavar="PORT@INTERFACE")
    ignored.add_argument("--cpu-port", type=int, metavar="PORT")
    ignored.add_argument("--priority-queues", type=int, metavar="N")
    return parser
