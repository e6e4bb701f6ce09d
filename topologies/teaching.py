"""mn --custom topologies/teaching.py --topo teaching[,rate=MBIT]

A session for a class: two leaves, two spines, four hosts a leaf, and commands at Mininet's prompt
(docs/tutorial).
"""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(
    str(Path((lambda: 0).__code__.co_filename).resolve().parent)
)  # mn gives this file no __file__
import on_mininet
from mininet.cli import CLI

leaf_spine = on_mininet.topology("leaf_spine")
topos = {"teaching": lambda rate=10: leaf_spine(2, 2, 4, 4, rate=rate)}
switches, controllers = on_mininet.switches, on_mininet.controllers
findController = on_mininet.default_controller  # noqa: N816 - the name that mn looks for

TASKS = """1. pingall. Which table of which switch forwards a ping, and in which queue?
2. jobs, then plan. Which two jobs share an uplink? Which flows of third are due later, and who says so?
3. policy fair, then plan. What did the controller write, and what did it leave alone?
4. drain leaf1 spine1, then pingall. Which flows move? restore leaf1 spine1 takes it back.
5. freeze, then pingall. The controller stands still. Why does everything go on? What does not? thaw ends it."""

# Three jobs leave leaf1, which has two uplinks: whatever the policy, two of the jobs share one.
JOBS = """job: first
parallelism: data
workers: [h1, h5]
data: {compute: 500 ms, gradient: 250 kB}
---
job: second
parallelism: data
workers: [h2, h6]
data: {compute: 500 ms, gradient: 250 kB}
---
job: third
parallelism: pipeline
workers: [h3, h7]
pipeline: {micro_batches: 3, forward: 100 ms, activation: 100 kB}
"""


def echelon(cli, *arguments, stdout=None):
    """Run a command of Echelon on the session's controller. Return what it prints to a pipe."""
    command = [sys.executable, "-m", "echelon", *arguments, "--url", cli.mn.controllers[0].url]
    return subprocess.run(command, check=False, stdout=stdout, text=True).stdout


def do_tasks(cli, _line):
    """Print the tasks."""
    print(TASKS)


def do_jobs(cli, _line):
    """Submit the three jobs, and show their state."""
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
    """Show the policy; or what another would write, and choose it: policy [NAME]"""
    if not line:
        echelon(cli, "policy", "show")
        return
    parts = echelon(cli, "policy", "set", *line.split(), "--dry-run", stdout=subprocess.PIPE).split(
        "\n\n"
    )
    print(parts[0], parts[-1], sep="\n\n")  # entries and slowdowns, without a line for each queue
    echelon(cli, "policy", "set", *line.split())


def do_drain(cli, line):
    """Plan around a link: drain A B"""
    echelon(cli, "link", "drain", *line.split()[:2])


def do_restore(cli, line):
    """Use a link again: restore A B"""
    echelon(cli, "link", "restore", *line.split()[:2])


def do_freeze(cli, _line):
    """Stop the process of the controller, without ending it."""
    cli.mn.controllers[0].service.send_signal(signal.SIGSTOP)


def do_thaw(cli, _line):
    """Let the controller go on."""
    cli.mn.controllers[0].service.send_signal(signal.SIGCONT)


for command in (
    do_tasks,
    do_jobs,
    do_plan,
    do_entries,
    do_policy,
    do_drain,
    do_restore,
    do_freeze,
    do_thaw,
):
    setattr(CLI, command.__name__, command)
