"""The command `echelon`. Bad input ends it with status 2 and one line that names file, key and reason.

Modules are named after the commands that they hold. At their top they import only what is cheap; a command imports what
it needs when it runs, so that `--help` and checks of files are quick.
"""

from __future__ import annotations

import typer

from echelon.cli import (
    changes,
    checks,
    coflows,
    evaluations,
    experiments,
    fabrics,
    importing,
    jobs,
    links,
    pictures,
    placing,
    plans,
    policies,
    runs,
    serving,
    shell,
    stores,
    sweeps,
    switches,
    tokens,
    traffic,
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
)

_EXPERIMENTS = "Experiments and files"
_SERVICE = "The service"
_OPERATION = "Operating a running service (ECHELON_URL, ECHELON_TOKEN_FILE)"

app.command(rich_help_panel=_EXPERIMENTS)(runs.run)
app.command(rich_help_panel=_EXPERIMENTS)(sweeps.sweep)
app.command(rich_help_panel=_EXPERIMENTS)(placing.place)
app.command(rich_help_panel=_EXPERIMENTS)(checks.check)
app.command(name="import", rich_help_panel=_EXPERIMENTS)(importing.import_workload)
app.command(rich_help_panel=_EXPERIMENTS)(pictures.show)
app.add_typer(fabrics.app, name="fabric", rich_help_panel=_EXPERIMENTS)
app.add_typer(traffic.app, name="traffic", rich_help_panel=_EXPERIMENTS)
app.add_typer(experiments.app, name="experiment", rich_help_panel=_EXPERIMENTS)
app.command(rich_help_panel=_EXPERIMENTS)(evaluations.evaluate)
app.command(rich_help_panel=_EXPERIMENTS)(coflows.coflows)
app.command(rich_help_panel=_SERVICE)(serving.serve)
app.command(rich_help_panel=_SERVICE)(tokens.token)
app.command(rich_help_panel=_SERVICE)(stores.backup)
app.command(rich_help_panel=_SERVICE)(stores.restore)
app.add_typer(jobs.app, name="job", rich_help_panel=_OPERATION)
app.add_typer(switches.app, name="switch", rich_help_panel=_OPERATION)
app.add_typer(plans.app, name="plan", rich_help_panel=_OPERATION)
app.add_typer(policies.app, name="policy", rich_help_panel=_OPERATION)
app.add_typer(links.app, name="link", rich_help_panel=_OPERATION)
app.command(rich_help_panel=_OPERATION)(changes.events)
app.command(rich_help_panel=_OPERATION)(watch.watch)
app.command(rich_help_panel=_OPERATION)(shell.shell)


def main() -> None:
    """Entry point of the command."""
    app(prog_name="echelon")
