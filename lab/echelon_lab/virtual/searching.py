"""The progress of a run while a policy searches for its plan."""

from __future__ import annotations

from echelon.model.progress import CommandProgress


def report_search(
    progress: CommandProgress,
    label: str,
    share: float,
) -> None:
    """Tell which share of the search is done."""
    progress.doing(f"{label}: searching for a plan ({share:.0%})")
    progress.share(share)
