"""The kinds of change that clients ask for, each in a module of its own.

What comes in is the request, as the API makes it; what goes out is what the machine asks of each
kind, step by step: its target, what is saved, the facts and the answer, the entry of the audit
trail. Begin with `echelon.controller.machine.change`, which has the steps, then read `remove_job`;
CONTRIBUTING.md says how to add a kind.
"""

from echelon.controller.changes.choose_policy import ChoosePolicy
from echelon.controller.changes.move_links import MoveLinks
from echelon.controller.changes.register_job import RegisterJob
from echelon.controller.changes.remove_job import RemoveJob
from echelon.controller.changes.report_connections import ReportConnections
from echelon.controller.changes.report_distances import ReportDistances
from echelon.controller.changes.set_link import SetLink
from echelon.controller.changes.turn_links import TurnLinks

__all__ = [
    "ChoosePolicy",
    "MoveLinks",
    "RegisterJob",
    "RemoveJob",
    "ReportConnections",
    "ReportDistances",
    "SetLink",
    "TurnLinks",
]
