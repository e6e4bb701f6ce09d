"""`echelon backup` and `echelon restore`: copies of what the service must not lose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from echelon.cli.tables import AsJson, show_json
from echelon.cli.usage import fail

Config = Annotated[Path, typer.Option(help="The configuration that names the store.", metavar="FILE")]
Copy = Annotated[Path, typer.Argument(help="The copy.", metavar="COPY")]

_CONFIG = Path("echelon.yaml")


def backup(copy: Copy, config: Config = _CONFIG, as_json: AsJson = False) -> None:
    """Copy jobs, policy and drained links to one file, while the service runs or not.

    Example: echelon backup copy.db --config echelon.yaml
    """
    from echelon.service.store import StoreError
    from echelon.service.store.sqlite import back_up

    try:
        jobs = back_up(_file(config), copy)
    except StoreError as error:
        fail(str(error))
    _show(copy, jobs, as_json)


def restore(copy: Copy, config: Config = _CONFIG, as_json: AsJson = False) -> None:
    """Replace the store of a stopped service by a copy. The former store is kept as NAME.replaced.

    Example: echelon restore copy.db --config echelon.yaml
    """
    from echelon.service.store import StoreError
    from echelon.service.store.sqlite import restore as put_back

    file = _file(config)
    try:
        jobs = put_back(copy, file)
    except StoreError as error:
        fail(str(error))
    _show(file, jobs, as_json)


def _show(file: Path, jobs: int, as_json: bool) -> None:
    if as_json:
        show_json({"file": file, "jobs": jobs})
    else:
        typer.echo(f"{file}: {jobs} jobs")


def _file(config: Path) -> Path:
    """Return the file of the configured store."""
    from echelon.documents import DocumentError
    from echelon.service.config import load_service_config
    from echelon.service.store import StoreError
    from echelon.service.store.sqlite import path_of

    try:
        url = load_service_config(config).store.get_secret_value()
        if not url.startswith("sqlite:"):
            fail(f"{config}: store: is not a file (use 'etcdctl snapshot save' and 'etcdctl snapshot restore')")
        return path_of(url)
    except (DocumentError, StoreError) as error:
        fail(str(error))
