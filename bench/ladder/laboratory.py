"""What the ladder uses of the laboratory and of its switch: it takes limits away inside of both."""

from __future__ import annotations

from ctoolchain import CSource, Loaded, load
from echelon_lab.endhosts import shim
from echelon_lab.evaluation.draw import Drawn, draw
from echelon_lab.evaluation.measure import Origin
from echelon_lab.evaluation.tasks import HALVES, Half
from echelon_lab.points.lines import LineStore
from echelon_lab.points.store import code_digest
from echelon_lab.points.tasks import SweepError, Task, sweep
from echelon_lab.run import scenario_digest
from echelon_lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, load_scenario, scenario_of
from echelon_lab.virtual.embedded import VirtualTestbed
from echelon_lab.virtual.fluid_run import run as run_fluid
from echelon_lab.virtual.run import run as run_packets
from softswitch.native.fabric import EventLoop, fabric_source

__all__ = [
    "HALVES",
    "CSource",
    "Drawn",
    "EventLoop",
    "Half",
    "LineStore",
    "Loaded",
    "Origin",
    "PolicyChoice",
    "PolicyRun",
    "Scenario",
    "SweepError",
    "Task",
    "VirtualTestbed",
    "alone_iterations_s",
    "code_digest",
    "draw",
    "fabric_source",
    "load",
    "load_scenario",
    "run_fluid",
    "run_packets",
    "scenario_digest",
    "scenario_of",
    "shim",
    "sweep",
]
