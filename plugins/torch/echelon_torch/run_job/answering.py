"""The socket at which the processes of a job ask for the classes of their groups.

A message is a line of JSON, and so is the answer: the class of a group, by address, or nothing to
what a process only says.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from echelon.controller.client import ClientError
from echelon.model.errors import RunError
from echelon_torch.run_job.matching import GroupClass, Matching, ProcessGroup

if TYPE_CHECKING:
    from echelon.controller.client import Client
    from echelon.controller.resources.plan import ClassesResource
    from echelon_torch.run_job.communicators import JobLayout

_MOST_BYTES = 1 << 24


class GroupClasses:
    """The classes of a job's groups on a host, by the plan that is in force when a group is made.

    `say` takes a line for the operator, which is not repeated.
    """

    def __init__(
        self,
        client: Client,
        job: str,
        layout: JobLayout,
        hosts: tuple[str, ...],
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._job = job
        self._layout = layout
        self._hosts = hosts
        self._print = say
        self._addresses = client.connections(job).addresses
        self._classes = _by_echelonflow(client.classes(job))
        self._lines: set[str] = set()
        self._lock = threading.Lock()

    def answer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a message of a process."""
        with self._lock:
            if "say" in message:
                self._say(str(message["say"]))
                return {}
            group = ProcessGroup(
                message["rank"],
                message["world"],
                message["ranks"],
                message["description"],
            )
            matching = Matching(self._layout, self._newest_classes())
            group_class = matching.class_of(group, self._hosts)
            self._tell(group_class, is_nccl=message["nccl"])

        tos = {}
        for host, byte in group_class.tos.items():
            address = self._addresses[host]
            tos[address] = byte
        return {
            "traffic_class": group_class.traffic_class,
            "tos": tos,
            "note": group_class.note,
        }

    def _newest_classes(self) -> Mapping[str, int | None]:
        try:
            self._classes = _by_echelonflow(self._client.classes(self._job))
        except ClientError as error:
            self._say(f"classes are those of before, since the service does not answer: {error}")
        return self._classes

    def _tell(
        self,
        group_class: GroupClass,
        *,
        is_nccl: bool,
    ) -> None:
        line = group_class.note
        if is_nccl and line and group_class.traffic_class is None:
            if len(set(self._classes.values())) == 1:
                # It is in the environment, and holds for all groups of NCCL.
                line += "; NCCL has the job's only class (NCCL_IB_TC)"
            elif group_class.of_nccl:
                self._say(group_class.of_nccl)
        if line:
            self._say(line)

    def _say(self, line: str) -> None:
        if line not in self._lines:
            self._lines.add(line)
            self._print(line)


def _by_echelonflow(job: ClassesResource) -> Mapping[str, int | None]:
    classes = {}
    for each in job.classes:
        classes[each.echelonflow] = each.traffic_class
    return classes


@contextmanager
def answering(classes: GroupClasses) -> Iterator[Path]:
    """Answer the processes of this user at a socket, and yield its path."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline(_MOST_BYTES)
            message = json.loads(line)
            answer = classes.answer(message)
            text = json.dumps(answer)
            self.wfile.write(text.encode() + b"\n")

    with TemporaryDirectory(prefix="echelon-run-job-") as directory:
        path = Path(directory) / "classes"
        try:
            server = ThreadingUnixStreamServer(str(path), Handler)
        except OSError as error:
            reason = error.strerror or error
            raise RunError(f"{path}: {reason} (set TMPDIR to a shorter path)") from None
        with server:
            server.daemon_threads = True
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield path
            finally:
                server.shutdown()
