"""The command `echelon`. Bad input ends it with status 2 and one line that names file, key and reason.

Modules are named after the commands that they hold. At their top they import only what is cheap; a command imports what
it needs when it runs, so that `--help` and checks of files are quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from echelon.cli import (
    about,
    agent,
    capturing,
    changes,
    checks,
    coflows,
    completion,
    evaluations,
    examples,
    experiments,
    fabrics,
    importing,
    jobs,
    links,
    pictures,
    placing,
    plans,
    plots,
    policies,
    runs,
    serving,
    shell,
    status,
    stores,
    sweeps,
    switches,
    tokens,
    top,
    traffic,
    viewing,
    watch,
)
from echelon.cli.usage import CommandGroup

__all__ = ["app", "main"]

app = typer.Typer(
    help="Schedule the network flows of distributed training jobs.",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_EXPERIMENTS = "Experiments and files"
_SERVICE = "The service"
_OPERATION = "Operating a running service (ECHELON_URL, ECHELON_TOKEN_FILE)"

app.command(name="help", rich_help_panel=_EXPERIMENTS)(about.show_help)
app.command(rich_help_panel=_EXPERIMENTS)(examples.init)
app.command(name="examples", rich_help_panel=_EXPERIMENTS)(examples.examples)
app.command(rich_help_panel=_EXPERIMENTS)(runs.run)
app.command(rich_help_panel=_EXPERIMENTS)(viewing.view)
app.command(rich_help_panel=_EXPERIMENTS)(plots.plot)
app.command(rich_help_panel=_EXPERIMENTS)(sweeps.sweep)
app.command(rich_help_panel=_EXPERIMENTS)(placing.place)
app.command(rich_help_panel=_EXPERIMENTS)(checks.check)
app.command(name="import", rich_help_panel=_EXPERIMENTS)(importing.import_workload)
app.command(rich_help_panel=_EXPERIMENTS, context_settings={"allow_interspersed_args": False})(capturing.capture)
app.command(rich_help_panel=_EXPERIMENTS)(pictures.show)
app.add_typer(fabrics.app, name="fabric", rich_help_panel=_EXPERIMENTS)
app.add_typer(traffic.app, name="traffic", rich_help_panel=_EXPERIMENTS)
app.add_typer(experiments.app, name="experiment", rich_help_panel=_EXPERIMENTS)
app.command(rich_help_panel=_EXPERIMENTS)(evaluations.evaluate)
app.command(rich_help_panel=_EXPERIMENTS)(coflows.coflows)
app.command(rich_help_panel=_SERVICE)(serving.serve)
app.add_typer(agent.app, name="agent", rich_help_panel=_SERVICE)
app.command(rich_help_panel=_SERVICE)(tokens.token)
app.command(rich_help_panel=_SERVICE)(stores.backup)
app.command(rich_help_panel=_SERVICE)(stores.restore)
app.command(rich_help_panel=_OPERATION)(status.status)
app.command(rich_help_panel=_OPERATION)(top.top)
app.add_typer(jobs.app, name="job", rich_help_panel=_OPERATION)
app.add_typer(switches.app, name="switch", rich_help_panel=_OPERATION)
app.add_typer(plans.app, name="plan", rich_help_panel=_OPERATION)
app.add_typer(policies.app, name="policy", rich_help_panel=_OPERATION)
app.add_typer(links.app, name="link", rich_help_panel=_OPERATION)
app.command(rich_help_panel=_OPERATION)(changes.events)
app.command(rich_help_panel=_OPERATION)(watch.watch)
app.command(rich_help_panel=_OPERATION)(shell.shell)
app.command(rich_help_panel=_OPERATION)(completion.completion)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=about.print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the command."""
    completion.prepare()
    app(prog_name="echelon")
