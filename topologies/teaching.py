"""mn --custom topologies/teaching.py --topo teaching[,rate=MBIT]

A session for a class: two leaves, two spines, four hosts a leaf, and commands at Mininet's prompt (docs/tutorial).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path((lambda: 0).__code__.co_filename).resolve().parent))  # mn gives this file no __file__
import on_mininet
from mininet.cli import CLI

leaf_spine = on_mininet.topology("leaf_spine")
topos = {"teaching": lambda rate=10: leaf_spine(2, 2, 4, 4, rate=rate)}
switches, controllers = on_mininet.switches, on_mininet.controllers
findController = on_mininet.default_controller  # noqa: N816  the name that mn looks for

TASKS = """1. pingall. Which table of which switch forwards a ping, and in which queue?
2. jobs, then plan. Which fields of a ranking come from the job file, and which from the fabric?
3. policy fair, then plan. Which entries did the controller write, and which did it leave alone?
4. drain leaf1 spine1, then pingall. Which flows move? restore leaf1 spine1 takes it back.
5. Stop the process of `echelon serve` (kill -STOP), then pingall. Why does everything go on?"""

JOBS = """job: first
parallelism: data
workers: [h1, h5]
data: {compute: 500 ms, gradient: 250 kB}
---
job: second
parallelism: data
workers: [h2, h6]
data: {compute: 500 ms, gradient: 250 kB}
"""


def echelon(cli, *arguments):
    """Run a command of Echelon on the session's controller."""
    url = cli.mn.controllers[0].url
    subprocess.run([sys.executable, "-m", "echelon", *arguments, "--url", url], check=False)


def do_tasks(cli, _line):
    """Print the tasks."""
    print(TASKS)


def do_jobs(cli, _line):
    """Submit the two jobs, and show their state."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(JOBS)
        file.flush()
        echelon(cli, "job", "submit", file.name, "--wait")
    echelon(cli, "job", "list")


def do_plan(cli, _line):
    """Show ranking and path of every flow."""
    echelon(cli, "plan", "show")


def do_entries(cli, line):
    """Show what a switch holds and should hold: entries SWITCH"""
    echelon(cli, "switch", "show", *line.split()[:1], "--intent")


def do_policy(cli, line):
    """Show the policy, or choose another: policy [NAME]"""
    echelon(cli, "policy", *(["set", *line.split()] if line else ["show"]))


def do_drain(cli, line):
    """Plan around a link: drain A B"""
    echelon(cli, "link", "drain", *line.split()[:2])


def do_restore(cli, line):
    """Use a link again: restore A B"""
    echelon(cli, "link", "restore", *line.split()[:2])


for command in (do_tasks, do_jobs, do_plan, do_entries, do_policy, do_drain, do_restore):
    setattr(CLI, command.__name__, command)
