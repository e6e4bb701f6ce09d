"""The process of a turn of a comparison: it measures, and reports to the command."""

from __future__ import annotations

import pickle
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from echelon.model.errors import RunError
from echelon.model.progress import Account
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario
from echelon_lab.turns import Rounds, Runner, Start, Turn, phases_of, unwatched

_REPORT_S = 0.25
"""The time between two reports of a process. A bar on a terminal has as many frames."""


@dataclass(frozen=True, slots=True)
class TurnWork:
    """The task of a process."""

    scenario: Scenario
    target: str
    start: Start
    choice: PolicyChoice
    label: str
    ideal: Runner | None


class _SentAccount(Account):
    """An account of a turn, which sends the process of the command how far it is."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(time.monotonic)
        self._connection = connection
        self._sent_s = 0.0

    def doing(self, work: str, /) -> None:
        super().doing(work)
        self._send()

    def done(self, parts: float = 1, /) -> None:
        super().done(parts)
        self._send()

    def share(self, done: float, /) -> None:
        super().share(done)
        self._send()

    def _send(self) -> None:
        now_s = time.monotonic()
        if now_s - self._sent_s < _REPORT_S:
            return
        self._sent_s = now_s
        self._connection.send(self.how_far)


def work(connection: Connection, order: TurnWork) -> None:
    """Do a turn, and send its run or its error."""
    message: PolicyRun | Exception
    try:
        message = _measured(connection, order)
    except Exception as error:
        # Where it was raised matters only for faults of the program, which show all of it.
        error.add_note(f"in the process of {order.label}:\n{traceback.format_exc()}")
        message = _sendable(error, order.label)
    # Otherwise, the command has ended.
    with suppress(OSError):
        connection.send(message)


def _sendable(error: Exception, label: str) -> Exception:
    """Return the error, or one with its text where it cannot be made again in another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RunError(f"policy {label}: {type(error).__name__}: {error}")
    return error


def _measured(connection: Connection, order: TurnWork) -> PolicyRun:
    scenario = order.scenario
    account = _SentAccount(connection)
    run = order.ideal or order.start(unwatched, account)
    turn = Turn(order.choice, order.label, run, order.ideal is not None)
    account.stage(order.label, scenario.iterations * len(scenario.jobs), "iterations")
    account.expect(phases_of(turn, scenario, order.target, 0.0, ""))
    account.begin()
    rounds = Rounds(scenario, order.label, account, None)
    return turn.measured(scenario, rounds)
