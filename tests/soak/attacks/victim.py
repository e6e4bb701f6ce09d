"""The service and the switches that are attacked, and their operator.

The operator asks for the status again and again, and meanwhile submits and removes jobs and waits
for them. What was acknowledged must be there in the end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from echelon.controller.client import Client, ClientError
from echelon.controller.service.api.tokens import new_token
from echelon.switches.processes import free_port
from tests.echelon.service.lab import PAIR, RULE, Daemon, Lab, ring, settle, specs
from tests.echelon.southbound.test_tls import issued
from tests.soak.attacks.target import Target
from tests.soak.memory import bytes_of_process
from tests.softswitch.p4runtime.test_tls import make_authority

ATTACKED = "leaf1"
AUDIT = "5 s"
WAIT_S = 40.0
"""The time that a submission waits for its job to be installed."""
ANSWER_S = 60.0
RECOVERY_S = 120.0
"""The time by which all must be in order again: an audit, a session's backoff and the writes."""
KEPT = 4
"""The most jobs of the operator at a time."""
_ASK_EVERY_S = 0.1
_SUBMIT_EVERY_S = 0.5


@dataclass
class Victim:
    """A running service on a pair of switches."""

    lab: Lab
    daemon: Daemon
    url: str
    token: str
    ca: Path
    target: Target

    def client(self, retry_s: float = 0.0) -> Client:
        return Client(self.url, self.token, self.ca, timeout_s=ANSWER_S, retry_s=retry_s)

    def pid(self, of_switch: bool) -> int:
        return self.lab.switches[ATTACKED].process.pid if of_switch else self.daemon.pid

    def is_alive(self) -> bool:
        """Return whether the service and the attacked switch are still the same processes."""
        return self.daemon.alive and self.lab.switches[ATTACKED].process.alive

    def restart(self) -> None:
        """Kill the service as a power cut would, and start it again."""
        self.daemon.kill()
        self.daemon = self.lab.daemon()
        self.daemon.wait_event("leading")

    def recover(self) -> str:
        """Take back switches that another controller holds, and wait until all is in order.

        Return what is not in order; empty: all is.
        """
        with self.client(retry_s=ANSWER_S) as client:
            for switch in client.switches():
                if switch.state != "ready":
                    with suppress(ClientError):
                        client.take_switch(switch.name)
            give_up_at = time.monotonic() + RECOVERY_S
            while time.monotonic() < give_up_at:
                status = client.status()
                if status.settled and set(status.switches) == {"ready"}:
                    return "" if status.plan_problem is None else status.plan_problem
                time.sleep(_ASK_EVERY_S)
            return "; ".join(status.problems) or "not settled"


@contextmanager
def victim(directory: Path) -> Iterator[Victim]:
    """Yield a service with TLS and tokens, as operators run it, with its switches."""
    ops = new_token("ops", "operator")
    tokens = directory / "tokens.yaml"
    tokens.write_text(f"tokens:\n{ops.entry}")
    tokens.chmod(0o600)
    authority = make_authority(directory / "authority")
    certificate, key = issued(authority, "service")
    port = free_port()
    api = {
        "listen": f"127.0.0.1:{port}",
        "tokens": "tokens.yaml",
        "tls": {"certificate": str(certificate), "key": str(key)},
    }
    lab = Lab(directory, PAIR, api=api, audit=AUDIT, store="sqlite:state.db")
    lab.start()
    try:
        daemon = lab.daemon()
        daemon.wait_event("leading")
        switch = lab.switches[ATTACKED]
        target = Target(switch.address, switch.device_id, switch.path(switch.ports[0]), port)
        url = f"https://127.0.0.1:{port}"
        served = Victim(lab, daemon, url, ops.token, authority.home / "ca.crt", target)
        with served.client(retry_s=ANSWER_S) as client:
            client.set_policy("echelon", RULE)
            for number in range(6):
                client.register_job(ring(f"before{number}", ["h1", "h2", "h3", "h4"]))
            settle(client)
        yield served
    finally:
        with redirect_stdout(StringIO()):
            # It prints the ends of logs, for pytest.
            lab.stop()


@dataclass
class Operator:
    """An operator whose requests, from two threads, are timed during an attack."""

    victim: Victim
    of_switch: bool
    """Whether the memory of the attacked switch counts, rather than that of the service."""
    status_s: list[float] = field(default_factory=list)
    submit_s: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    problems: set[str] = field(default_factory=set)
    """The problems that the service reports meanwhile."""
    expected: dict[str, Any] = field(default_factory=dict)
    """The jobs that were acknowledged."""
    unsure: set[str] = field(default_factory=set)
    """The jobs of which a change was not answered."""
    _done: threading.Event = field(default_factory=threading.Event)

    def take_memory(self) -> None:
        """Note the present memory of the attacked process."""
        self.resident.append(bytes_of_process(self.victim.pid(self.of_switch)))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with self.victim.client(retry_s=ANSWER_S) as client:
            self.expected = specs(client)
        threads = [threading.Thread(target=each) for each in (self._watch, self._ask, self._submit)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._done.set()
            for thread in threads:
                thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_ASK_EVERY_S):
            with suppress(OSError):
                self.take_memory()

    def _ask(self) -> None:
        with self.victim.client() as client:
            while not self._done.wait(_ASK_EVERY_S):
                began_s = time.monotonic()
                try:
                    status = client.status()
                except ClientError as error:
                    self.failures.append(f"status: {error}")
                else:
                    self.problems.update(status.problems)
                    self.status_s.append(time.monotonic() - began_s)

    def _submit(self) -> None:
        kept: deque[str] = deque()
        turn = 0
        with self.victim.client() as client:
            while not self._done.wait(_SUBMIT_EVERY_S):
                turn += 1
                job = ring(f"job{turn}", ["h1", "h3"], f"{1 + turn % 7} MB")
                kept.append(job["job"])
                self._install(client, job)
                if len(kept) > KEPT:
                    self._remove(client, kept.popleft())

    def _install(self, client: Client, job: dict[str, Any]) -> None:
        name = job["job"]
        began_s = time.monotonic()
        try:
            client.register_job(job)
            self.expected[name] = job
            until_s = began_s + WAIT_S
            state = client.job(name, wait_s=WAIT_S).state
            while state != "installed" and time.monotonic() < until_s and not self._done.is_set():
                state = client.job(name, wait_s=until_s - time.monotonic()).state
        except ClientError as error:
            self.failures.append(f"submit: {error}")
            if name not in self.expected:
                self.unsure.add(name)
            return
        took_s = time.monotonic() - began_s
        if state != "installed":
            self.failures.append(f"submit: {state} after {took_s:.0f} s")
        self.submit_s.append(took_s)

    def _remove(self, client: Client, name: str) -> None:
        try:
            client.remove_job(name)
        except ClientError as error:
            self.failures.append(f"remove: {error}")
            self.unsure.add(name)
        else:
            self.expected.pop(name, None)

    def lost(self) -> list[str]:
        """Return the jobs that are not as they were acknowledged, now that the attack is over."""
        with self.victim.client(retry_s=ANSWER_S) as client:
            actual = specs(client)
        names = (set(actual) | set(self.expected)) - self.unsure
        return sorted(name for name in names if actual.get(name) != self.expected.get(name))
