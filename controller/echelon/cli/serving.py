"""`echelon serve`: the controller as a service.

Its administrator has `backup`, `restore` and `token`.
"""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from echelon.cli.tables import AsJson, show_json
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from echelon.controller.service.config import ServiceConfig


_CONFIG = Path("echelon.yaml")

ServiceFile = Annotated[
    Path,
    typer.Option(
        help="The configuration file.",
        metavar="FILE",
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        help=(
            "Keep jobs in this store instead of the configured one: sqlite:FILE or"
            " etcd://HOST:PORT/NAME."
        ),
        metavar="URL",
    ),
]
OnlyCheck = Annotated[
    bool,
    typer.Option("--check", help="Only check the configuration and the files that it names."),
]
EmptyStore = Annotated[
    bool,
    typer.Option(
        "--empty-store", help="Begin without jobs where the store of earlier ones is gone."
    ),
]
CheckInvariants = Annotated[
    bool,
    typer.Option(
        "--check-invariants", help="Check the controller after each step, and end at a fault."
    ),
]


def serve(
    config: ServiceFile = _CONFIG,
    store: StoreUrl = None,
    check: OnlyCheck = False,
    empty_store: EmptyStore = False,
    check_invariants: CheckInvariants = False,
) -> None:
    """Keep the switches of a fabric at what the policy wants, and take jobs over HTTP.

    Runs in the foreground until it is told to stop (SIGTERM, SIGINT). SIGHUP makes it read
    configuration, tokens and certificates again. Ends with status 2 if the configuration is bad.

    Example: echelon serve --config echelon.yaml
    """
    from echelon.controller.service.config import load_service_config
    from echelon.model.documents import DocumentError

    def read() -> ServiceConfig:
        loaded = load_service_config(config)
        settings = replace(
            loaded,
            accept_empty=empty_store,
            check_invariants=check_invariants,
        )
        if store is None:
            return settings
        return _with_store(settings, store)

    try:
        settings = read()
        if check:
            _check_named_files(settings, str(config))
            typer.echo(f"{config}: service '{settings.name}' is good")
            return
    except DocumentError as error:
        fail(str(error))

    # The service collects garbage at times of its own, and modules leave hardly any.
    gc.disable()
    from echelon.controller.service.daemon import serve as serve_until_told

    raise typer.Exit(serve_until_told(settings, read))


def _with_store(config: ServiceConfig, url: str) -> ServiceConfig:
    from pydantic import SecretStr

    from echelon.controller.service.config_file import store_url
    from echelon.model.documents import DocumentError

    try:
        return replace(config, store=SecretStr(store_url(url, Path.cwd())))
    except ValueError as error:
        raise DocumentError("--store", "", str(error)) from None


def _check_named_files(config: ServiceConfig, file: str) -> None:
    """Raise `DocumentError` about the first file that cannot be used."""
    from echelon.controller.service.api.tokens import load_tokens
    from echelon.controller.service.hazards import hazards
    from echelon.model.documents import DocumentError

    if config.api.tokens is not None:
        load_tokens(config.api.tokens)
    for key, path in _named_files(config):
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise DocumentError(
                file, key, f"{path}: {error.strerror or error} (check the path)"
            ) from None
    for warning in hazards(config):
        typer.echo(f"{file}: {warning}", err=True)


def _named_files(config: ServiceConfig) -> list[tuple[str, Path]]:
    """Return certificates and keys, each with the key of the configuration that names it."""
    keys: dict[Path, str] = {}

    def note(key: str, path: Path | None) -> None:
        # Most switches share their files; one line about each is enough.
        if path is not None:
            keys.setdefault(path, key)

    tls = config.api.tls
    if tls is not None:
        for key in ("certificate", "key", "client_ca"):
            note(f"api.tls.{key}", getattr(tls, key))
    for switch in config.switches.values():
        for key in ("ca", "certificate", "key"):
            note(f"switches.{switch.name}.tls.{key}", getattr(switch.tls, key, None))
    return [(key, path) for path, key in keys.items()]


Config = Annotated[
    Path,
    typer.Option(
        help="The configuration that names the store.",
        metavar="FILE",
    ),
]
Copy = Annotated[Path, typer.Argument(help="The copy.", metavar="COPY")]


def backup(
    copy: Copy,
    config: Config = _CONFIG,
    as_json: AsJson = False,
) -> None:
    """Copy jobs, policy and drained links to one file, while the service runs or not.

    Example: echelon backup copy.db --config echelon.yaml
    """
    from echelon.controller.service.store import StoreError
    from echelon.controller.service.store.sqlite import back_up

    try:
        jobs = back_up(_file(config), copy)
    except StoreError as error:
        fail(str(error))
    _show(copy, jobs, as_json)


def restore(
    copy: Copy,
    config: Config = _CONFIG,
    as_json: AsJson = False,
) -> None:
    """Replace the store of a stopped service by a copy. The former store is kept as NAME.replaced.

    Example: echelon restore copy.db --config echelon.yaml
    """
    from echelon.controller.service.store import StoreError
    from echelon.controller.service.store.sqlite import restore as put_back

    file = _file(config)
    try:
        jobs = put_back(copy, file)
    except StoreError as error:
        fail(str(error))
    _show(file, jobs, as_json)


def _show(
    file: Path,
    jobs: int,
    as_json: bool,
) -> None:
    if as_json:
        show_json({"file": file, "jobs": jobs})
    else:
        typer.echo(f"{file}: {jobs} jobs")


def _file(config: Path) -> Path:
    """Return the file of the configured store."""
    from echelon.controller.service.config import load_service_config
    from echelon.controller.service.store import StoreError
    from echelon.controller.service.store.sqlite import path_of
    from echelon.model.documents import DocumentError

    try:
        url = load_service_config(config).store.get_secret_value()
        if not url.startswith("sqlite:"):
            fail(
                f"{config}: store: is not a file (use 'etcdctl snapshot save' and 'etcdctl snapshot"
                " restore')"
            )
        return path_of(url)
    except (DocumentError, StoreError) as error:
        fail(str(error))


TokenName = Annotated[
    str,
    typer.Argument(
        help="The token's name in the access log.",
        metavar="NAME",
    ),
]
TokenRole = Annotated[
    str,
    typer.Option(
        help="operator may change things; read-only may only read; agent may only report.",
        metavar="operator|read-only|agent",
    ),
]
OnlyJobs = Annotated[
    list[str] | None,
    typer.Option(
        help="A job of which an agent's token may report; may be repeated. Default: all.",
        metavar="JOB",
    ),
]
NewFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write the token to this new file, which only you can read, instead of printing it.",
    ),
]


def token(
    name: TokenName,
    role: TokenRole,
    job: OnlyJobs = None,
    out: NewFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a token for the API.

    The token is for its owner, in a file that ECHELON_TOKEN_FILE names; it is shown once and stored
    nowhere. The entry is for the tokens file of the service, below 'tokens:'; it does not reveal
    the token.

    Example: echelon token h1-agent --role agent --job bert
    """
    from echelon.controller.service.api.tokens import Role, new_token
    from echelon.model.documents import DocumentError

    try:
        issued = new_token(name, cast(Role, role), job or ())
    except DocumentError as error:
        fail(str(error))
    if out is not None:
        _write_privately(out, issued.token)
    if as_json:
        place = {"token": issued.token} if out is None else {"file": out}
        show_json({"entry": issued.entry, **place})
        return
    if out is None:
        typer.echo(f"token:\n{issued.token}\nentry for the tokens file:")
    typer.echo(issued.entry, nl=False)


def _write_privately(file: Path, text: str) -> None:
    try:
        # Never overwrite a file: the token in it would be lost.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"{text}\n")
    except OSError as error:
        fail(f"--out: {file}: {error.strerror or error} (name a new file)")
