"""Measurements on an existing Dask cluster (extra `cluster`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from echelon.model.documents import DocumentError
from echelon.model.extras import how_to_install
from echelon_lab.points.store import code_digest
from echelon_lab.points.tasks import Keep, MeasuredTask, SweepError, Task, measured

_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<place>\S+:\d+)")
_SCHEMES = {None: "tcp", "dask": "tcp", "tcp": "tcp", "tls": "tls"}
_PATIENCE = "20s"
"""The time that the scheduler has to answer."""


class DaskCluster:
    """A Dask scheduler and its workers.

    When a worker dies, the scheduler gives its tasks to the others. The workers need the same
    version of Echelon: one with other code refuses.
    """

    def __init__(self, address: str) -> None:
        """Refer to the cluster whose scheduler is at an address.

        It is ``tcp://host:port``, ``tls://host:port`` or ``dask://host:port``.

        Raises `DocumentError` for any other address, or if Dask is not installed.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None or match["scheme"] not in _SCHEMES:
            reason = (
                f"'{address}' is not the address of a Dask scheduler, the only kind of cluster"
                " (write tcp://HOST:PORT)"
            )
            raise DocumentError("--cluster", "", reason, code="not-an-address")
        self.address = f"{_SCHEMES[match['scheme']]}://{match['place']}"
        try:
            import distributed  # noqa: F401
        except ModuleNotFoundError as error:
            raise DocumentError("--cluster", "", how_to_install(error) or str(error)) from None

    def measure(self, tasks: Sequence[Task], keep: Keep) -> None:
        """Measure `tasks` on the workers and call `keep` with each outcome.

        Raises `SweepError` if no scheduler answers.
        """
        from distributed import Client, KilledWorker, as_completed

        try:
            client = Client(
                self.address,
                timeout=_PATIENCE,
                set_as_default=False,
            )  # type: ignore[no-untyped-call]
        except (OSError, TimeoutError) as error:
            reason = (
                f"no Dask scheduler answers at {self.address}: {error}"
                " (start one there: dask scheduler)"
            )
            raise SweepError(reason) from None
        digest = code_digest(packets=True)
        with client:
            # A task that has been lost with its worker is repeated, so it may have no effect but
            # its result.
            futures = {
                client.submit(
                    _measured_there,
                    task.measure,
                    digest,
                    pure=False,
                    priority=-number,
                ): task
                for number, task in enumerate(tasks)
            }
            for future in as_completed(futures, loop=client.loop):  # type: ignore[no-untyped-call]
                try:
                    outcome = future.result()
                except KilledWorker as error:
                    outcome = MeasuredTask(
                        {},
                        0.0,
                        f"each worker that measured it died: {error} (give workers more memory)",
                    )
                keep(futures.pop(future), outcome)


def _measured_there(measure: Callable[[], Mapping[str, Any]], digest: str) -> MeasuredTask:
    if code_digest(packets=True) != digest:
        return MeasuredTask(
            {},
            0.0,
            "a worker of the cluster has another version of Echelon (install the same everywhere)",
        )
    return measured(measure)
