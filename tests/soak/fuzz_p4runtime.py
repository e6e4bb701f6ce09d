"""Random and mutated P4Runtime and gNMI messages against the real `softswitch` command.

    python -m tests.soak p4runtime [--messages 20000] [--seed 1]

Every message must end with a status, the switch must go on, and its memory must stay flat. Prints
how the messages ended, kind by kind, and the memory before and after; the exit status is 1 if
anything is wrong.

Memory is that of the switch's process, which is another one than this. It is compared at equal
states: each time the pipeline has just been set anew, so that no entry is left, and
`Device.rpc_log`, the log of the latest 20,000 messages, is full from the beginning, because it is
filled with messages of no effect before the first of those that count. What is compared is the
median of the second quarter of the run with that of the last.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any

import grpc
from finsy.proto import U128, gnmi, p4r
from google.protobuf.message import Message

from softswitch.p4runtime.device import LOG_LENGTH
from tests.p4runtime_fuzz import Messages, mutated
from tests.soak.memory import FLAT, growth
from tests.softswitch.p4runtime.conftest import Everything
from tests.softswitch_process import Running, sound

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
ROUND = 1000
"""Messages after which the pipeline is set anew, so that what they left behind is gone when memory
is measured.
"""

MARK = 0xFFFFFFFF
"""The digest id of the acknowledgements that tell how far the switch has read a stream."""

_P4, _GNMI = "/p4.v1.P4Runtime/", "/gnmi.gNMI/"


@dataclass
class Outcome:
    """The outcome of an attack."""

    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(kind of message, status)"""
    wrong: list[str] = field(default_factory=list)
    """Messages that did not end as they must."""
    resident_kib: list[int] = field(default_factory=list)
    """Memory of the switch after each round."""

    @property
    def early_kib(self) -> float:
        """Memory in the second quarter of the run: the median, as single values differ by up to 4 %
        to and fro.
        """
        rounds = len(self.resident_kib)
        return median(self.resident_kib[rounds // 4 : rounds // 2] or self.resident_kib)

    @property
    def late_kib(self) -> float:
        """The median in the last quarter."""
        return median(self.resident_kib[-max(1, len(self.resident_kib) // 4) :])


def running() -> AbstractContextManager[Running]:
    """Run a switch without a program. Raises AssertionError if it ends by itself or complains."""
    return sound("--no-p4", "--cpu-port", "510")


class Attacker:
    """A controller that sends whatever comes."""

    def __init__(self, address: str, pid: int, seed: int) -> None:
        self.outcome = Outcome()
        self._pid = pid
        self._random = random.Random(seed)
        self._channel = grpc.insecure_channel(
            address, [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 16 << 20)]
        )
        self._program = Everything()
        self._messages = Messages(self._program, self._random)
        self._election = 0
        self._marks = 0
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._responses: Any = None
        self._open()

    def run(self, messages: int, progress: Callable[[int], None] = lambda _done: None) -> None:
        """Send so many messages."""
        kinds = [
            (self._write, 40),
            (self._read, 20),
            (self._stream, 20),
            (self._gnmi, 15),
            (self._other, 4),
        ]
        choices, weights = [kind for kind, _ in kinds], [weight for _, weight in kinds]
        for number in range(messages):
            if number % ROUND == 0:
                self._renew()
                progress(number)
            if number % 100 == 50:
                self._pipeline()
            else:
                self._random.choices(choices, weights)[0]()
        self._renew()
        progress(messages)

    def fill_log(self) -> None:
        """Make the switch's log of messages as long as it ever gets."""
        self._renew()
        # These are taken without an answer. Of refused messages, the switch reads 100 a second.
        taken = p4r.DigestListAck(digest_id=self._program.ids["station_t"])
        message = p4r.StreamMessageRequest(digest_ack=taken).SerializeToString()
        for _ in range(LOG_LENGTH):
            self._outbox.put(message)
        mark = p4r.DigestListAck(digest_id=MARK)
        self._outbox.put(p4r.StreamMessageRequest(digest_ack=mark).SerializeToString())
        next(self._responses)  # the error that the mark is answered with
        self.outcome.resident_kib.clear()

    # -- the messages ------------------------------------------------------------------------------

    def _write(self) -> None:
        entities = [self._entity() for _ in range(self._random.choice([1, 1, 2, 3, 5]))]
        if self._random.random() < 0.1:
            entities *= 20
        request = p4r.WriteRequest(
            device_id=1,
            election_id=U128.encode(self._election),
            updates=[
                p4r.Update(type=self._random.choice([1, 1, 1, 2, 3, 0]), entity=part)
                for part in entities
            ],  # type: ignore[arg-type]
            atomicity=self._random.choice([0, 0, 0, 1, 2]),  # type: ignore[arg-type]
        )
        self._send("Write", _P4 + "Write", self._spoilt(request))

    def _read(self) -> None:
        request = p4r.ReadRequest(
            device_id=1, entities=[self._entity() for _ in range(self._random.randint(1, 3))]
        )
        self._send("Read", _P4 + "Read", self._spoilt(request))

    def _pipeline(self) -> None:
        if self._random.random() < 0.5:
            config = self._messages.mutated_p4info()
        else:
            config = self._messages.mutated_program()
        action = self._random.choice([0, 1, 1, 2, 3, 4, 5, 9])
        self._send(
            "SetForwardingPipelineConfig",
            _P4 + "SetForwardingPipelineConfig",
            self._set(config, action),
        )

    def _other(self) -> None:
        name, request = self._random.choice(
            [
                (
                    "GetForwardingPipelineConfig",
                    p4r.GetForwardingPipelineConfigRequest(device_id=1),
                ),
                ("Capabilities", p4r.CapabilitiesRequest(device_id=1)),
            ]
        )
        self._send(name, _P4 + name, self._spoilt(request))

    def _gnmi(self) -> None:
        path, value = self._messages.gnmi_path(), self._messages.gnmi_value()
        name, request = self._random.choice(
            [
                ("Get", gnmi.GetRequest(path=[path], encoding=self._random.choice([0, 2, 4]))),  # type: ignore[arg-type]
                ("Set", gnmi.SetRequest(update=[gnmi.Update(path=path, val=value)])),
                (
                    "Subscribe",
                    gnmi.SubscribeRequest(
                        subscribe=gnmi.SubscriptionList(
                            mode=gnmi.SubscriptionList.ONCE,
                            subscription=[gnmi.Subscription(path=path)],
                        )
                    ),
                ),
                ("Capabilities", gnmi.CapabilityRequest()),
            ]
        )
        self._send(f"gNMI {name}", _GNMI + name, self._spoilt(request))

    def _stream(self) -> None:
        """Send one message on the stream and find out whether the switch has digested it."""
        election_id = U128.encode(self._election + 1)
        claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=election_id)
        seeds = self._messages.on_stream(claim)
        data = self._spoilt(self._random.choice(seeds))
        self._marks += 1
        mark = p4r.StreamMessageRequest(
            digest_ack=p4r.DigestListAck(digest_id=MARK, list_id=self._marks)
        )
        self._outbox.put(data)
        self._outbox.put(mark.SerializeToString())
        status = "OK"
        try:
            for response in self._responses:
                kind = response.WhichOneof("update") or "empty"
                if kind == "error":
                    if response.error.digest_list_ack.digest_list_ack.list_id == self._marks:
                        break
                    status = code_name(response.error.canonical_code)
                elif kind not in _UNASKED:
                    status = kind
            else:
                self.outcome.wrong.append("StreamChannel: ended by the switch without a reason")
            self.outcome.statuses["StreamChannel", status] += 1
        except grpc.RpcError as error:
            self._ended("StreamChannel", error)
        self._open()

    # -- inside ------------------------------------------------------------------------------------

    def _entity(self) -> p4r.Entity:
        if self._random.random() < 0.7:
            return self._messages.mutated_entity()
        return self._random.choice(self._messages.seeds)

    def _spoilt(self, request: Message) -> bytes:
        """Return the request serialized, sometimes spoilt so that it is no message any more."""
        if self._random.random() < 0.2:
            request = mutated(request, self._random)
        data: bytes = request.SerializeToString()
        if self._random.random() < 0.05:
            return data[: self._random.randrange(len(data) + 1)] + self._random.randbytes(
                self._random.randint(0, 5)
            )
        return data

    def _set(self, config: p4r.ForwardingPipelineConfig, action: int) -> bytes:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            election_id=U128.encode(self._election),
            action=action,  # type: ignore[arg-type]
            config=config,
        )
        data: bytes = request.SerializeToString()
        return data

    def _renew(self) -> None:
        """Be the primary, set the pipeline, and measure the switch's memory."""
        self._open()
        set_pipeline = self._channel.unary_unary(_P4 + "SetForwardingPipelineConfig")
        set_pipeline(
            self._set(
                self._program.config(), p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
            ),
            TIMEOUT_S,
        )
        status = Path(f"/proc/{self._pid}/status").read_text()
        self.outcome.resident_kib.append(int(status.partition("VmRSS:")[2].split()[0]))

    def _open(self) -> None:
        """Take a new stream, as the primary."""
        for _ in range(1000):
            self._outbox.put(None)
            if self._responses is not None:
                self._responses.cancel()
            self._outbox = SimpleQueue()
            stream = self._channel.stream_stream(
                _P4 + "StreamChannel", response_deserializer=p4r.StreamMessageResponse.FromString
            )
            self._responses = stream(iter(self._outbox.get, None), timeout=10 * TIMEOUT_S)
            try:
                self._claim()
            except grpc.RpcError as error:
                # The switch may not have noticed yet that the former stream is gone.
                if error.code() not in (
                    grpc.StatusCode.INVALID_ARGUMENT,
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                ):
                    raise
            else:
                return
        raise AssertionError("no stream could be had")

    def _claim(self) -> None:
        answer = None
        while answer is None or answer.status.code:
            # A mutated claim may have been far higher; the highest of all may be claimed again.
            known = self._election if answer is None else U128.decode(answer.election_id)
            self._election = min(known + 1, (1 << 128) - 1)
            claim = p4r.MasterArbitrationUpdate(
                device_id=1, election_id=U128.encode(self._election)
            )
            self._outbox.put(p4r.StreamMessageRequest(arbitration=claim).SerializeToString())
            answer = next(self._responses).arbitration

    def _send(self, kind: str, method: str, data: bytes) -> None:
        """Send a request and note how it ends."""
        call = self._channel.unary_stream(method) if kind == "Read" else None
        try:
            if call is not None:
                list(call(data, timeout=TIMEOUT_S))
            elif kind == "gNMI Subscribe":
                self._subscribe(method, data)
            else:
                self._channel.unary_unary(method)(data, timeout=TIMEOUT_S)
            self.outcome.statuses[kind, "OK"] += 1
        except grpc.RpcError as error:
            self._ended(kind, error)

    def _subscribe(self, method: str, data: bytes) -> None:
        """Read the answers up to the end of the first values, after which a mutated request may
        have none.
        """
        answers = self._channel.stream_stream(
            method, response_deserializer=gnmi.SubscribeResponse.FromString
        )(iter([data]), timeout=TIMEOUT_S)
        for answer in answers:
            if answer.sync_response:
                answers.cancel()
                return

    def _ended(self, kind: str, error: Any) -> None:
        code, details = error.code(), error.details() or ""
        self.outcome.statuses[kind, code.name] += 1
        of_a_batch = code is grpc.StatusCode.UNKNOWN and "failed; number" in details
        if code in _CRASHES and not of_a_batch:
            self.outcome.wrong.append(f"{kind}: {code.name}: {details}")


_UNASKED = ("idle_timeout_notification", "digest", "packet")
"""The kinds of stream messages that are no answers."""

_CRASHES = (
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)


def code_name(number: int) -> str:
    """Return the name of a canonical code."""
    return next((code.name for code in grpc.StatusCode if code.value[0] == number), str(number))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)


def run(options: argparse.Namespace) -> int:
    """Run, and print the outcome as tables. Return 1 if anything is wrong, else 0."""
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    with running() as switch, Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("messages", total=options.messages)
        attacker = Attacker(switch.address, switch.process.pid, options.seed)
        attacker.fill_log()
        attacker.run(options.messages, lambda done: progress.update(task, completed=done))
    outcome = attacker.outcome
    table = Table(
        "message", "status", "count", title=f"{options.messages} messages, seed {options.seed}"
    )
    for (kind, status), count in sorted(outcome.statuses.items()):
        table.add_row(kind, status, f"{count}")
    memory = Table("memory of the switch, log of messages full", "MiB")
    grown = growth(outcome.early_kib, outcome.late_kib)
    memory.add_row("second quarter of the run, median", f"{outcome.early_kib / 1024:.1f}")
    memory.add_row("last quarter, median", f"{outcome.late_kib / 1024:.1f}")
    memory.add_row("growth", f"{100 * grown:.1f} %")
    console = Console()
    console.print(table, memory)
    for line in outcome.wrong[:20]:
        console.print(f"WRONG {line}")
    answered = outcome.statuses.total()
    if answered != options.messages:
        console.print(f"WRONG {options.messages} messages, but {answered} statuses")
    failed = bool(outcome.wrong) or answered != options.messages or grown > FLAT
    console.print("failed" if failed else "no crash, every message got a status, memory is flat")
    return int(failed)
