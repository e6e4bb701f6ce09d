"""The states of jobs and of moves of links, which the API shows."""

from __future__ import annotations

from typing import Literal, TypeAlias

JobState: TypeAlias = Literal["accepted", "planned", "installed", "unplanned"]
"""The state of a job.

accepted: in the store. planned: part of the plan in force. installed: acknowledged by every
switch that its flows pass (a switch that restarts or is cut off has not acknowledged until it is
back). unplanned: the policy or lowering refuses the job; the last good plan holds, and the problem
says why.
"""

Stage: TypeAlias = Literal["standing", "routing", "draining", "moving", "installing"]
"""The stage of a move of links.

standing: no move is under way. routing: flows take other paths. draining: packets on their way
pass. moving: links move. installing: switches get the plan for the new links.
"""
