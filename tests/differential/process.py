"""A switch as a process, with a P4Runtime server that we are the primary controller of."""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc  # type: ignore[import-untyped]
from finsy.proto import U128, p4r, p4r_grpc, rpc_status

from tests.differential.catalogue import Subject
from tests.differential.target import TargetError

DEVICE_ID = 1
RPC_SECONDS = 60
START_SECONDS = 30

CHANNEL_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 4 << 20)]


class SwitchProcess:
    """A switch that runs `command` until `stop`; it is ready once it accepts connections at all of
    `ports` (of 127.0.0.1).

    Raises TargetError, with the end of what the command printed, if that does not come to be.
    """

    def __init__(self, command: Sequence[str], ports: Sequence[int]) -> None:
        self.name = command[0].rpartition("/")[2]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            for port in ports:
                self._await_listening(port)
        except TargetError:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def failure(self, what: str, error: Any) -> TargetError:
        """Return the error to raise when `what` failed with an RpcError, with the end of the
        process's output.
        """
        died = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            died = f"; it ended with status {self._process.wait(0.5)}"
        return TargetError(
            f"{self.name}: {what}: {error.code().name}: {error.details()}{died}; log:"
            f" {self._tail()}"
        )

    @contextlib.contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Turn an RpcError into `failure`."""
        try:
            yield
        except grpc.RpcError as error:
            raise self.failure(what, error) from None

    def _await_listening(self, port: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as probe:
                # A probe may be given the port itself, and then reaches itself.
                if (
                    probe.connect_ex(("127.0.0.1", port)) == 0
                    and probe.getsockname() != probe.getpeername()
                ):
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise TargetError(f"{self.name} does not start: {self._tail()}")
            time.sleep(0.005)

    def _tail(self) -> str:
        self._log.seek(0)
        return " | ".join(self._log.read().decode(errors="replace").splitlines()[-5:])


class Connection:
    """P4Runtime to a process, as the primary of device 1.

    Raises TargetError where the server fails.
    """

    def __init__(self, process: SwitchProcess, port: int) -> None:
        self._process = process
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id=U128.encode(1))
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        responses = self._stub.StreamChannel(iter(self._requests.get, None))
        with process.explained("arbitration"):
            answer = next(responses)
        if answer.arbitration.status.code:
            raise TargetError(
                f"{process.name} does not make us primary: {answer.arbitration.status.message}"
            )
        threading.Thread(
            target=_drain, args=(responses,), name="differential-stream", daemon=True
        ).start()

    def close(self) -> None:
        self._requests.put(None)
        self._channel.close()

    def push(self, subject: Subject) -> None:
        """Commit a program."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID,
            election_id=U128.encode(1),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=p4r.ForwardingPipelineConfig(
                p4info=subject.p4info, p4_device_config=subject.json
            ),
        )
        with self._process.explained(f"does not take {subject.name}"):
            self._stub.SetForwardingPipelineConfig(request, timeout=RPC_SECONDS)

    def write(self, updates: Sequence[p4r.Update]) -> list[int]:
        """Write the updates, and return one status code per update."""
        request = p4r.WriteRequest(device_id=DEVICE_ID, election_id=U128.encode(1), updates=updates)
        try:
            self._stub.Write(request, timeout=RPC_SECONDS)
        except grpc.RpcError as error:
            codes = _codes(error)
            if len(codes) != len(updates):
                raise self._process.failure("Write", error) from None
            return codes
        return [0] * len(updates)

    def read(self, queries: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        if not queries:
            return []
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=queries)
        with self._process.explained("Read"):
            responses = self._stub.Read(request, timeout=RPC_SECONDS)
            return [entity for response in responses for entity in response.entities]


def _codes(error: Any) -> list[int]:
    """Return the codes of a batch that failed; none if the batch was refused as a whole."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            details = rpc_status.Status.FromString(value).details
            return [p4r.Error.FromString(detail.value).canonical_code for detail in details]
    return []


def _drain(responses: Any) -> None:
    with contextlib.suppress(grpc.RpcError):
        for _ in responses:
            pass
