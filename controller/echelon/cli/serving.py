"""`echelon serve`: the controller as a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.usage import fail

if TYPE_CHECKING:
    from echelon.service.config import ServiceConfig


def serve(
    config: Annotated[Path, typer.Option(help="The configuration file.", metavar="FILE")] = Path("echelon.yaml"),
    store: Annotated[
        str | None,
        typer.Option(
            help="Keep jobs in this store instead of the configured one: sqlite:FILE or etcd://HOST:PORT/NAME.",
            metavar="URL",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the configuration and the files that it names.")
    ] = False,
) -> None:
    """Keep the switches of a fabric at what the policy wants, and take jobs over HTTP.

    Runs in the foreground until it is told to stop (SIGTERM, SIGINT). SIGHUP makes it read configuration, tokens and
    certificates again. Ends with status 2 if the configuration is bad.

    Example: echelon serve --config echelon.yaml
    """
    from echelon.documents import DocumentError
    from echelon.service.config import load_service_config

    def read() -> ServiceConfig:
        settings = load_service_config(config)
        return settings if store is None else _with_store(settings, store)

    try:
        settings = read()
        if check:
            _check_named_files(settings, str(config))
            typer.echo(f"{config}: service '{settings.name}' is good")
            return
    except DocumentError as error:
        fail(str(error))

    from echelon.service.daemon import serve as serve_until_told

    raise typer.Exit(serve_until_told(settings, read))


def _with_store(config: ServiceConfig, url: str) -> ServiceConfig:
    from dataclasses import replace

    from pydantic import SecretStr

    from echelon.documents import DocumentError
    from echelon.service.config_file import store_url

    try:
        return replace(config, store=SecretStr(store_url(url, Path.cwd())))
    except ValueError as error:
        raise DocumentError("--store", "", str(error)) from None


def _check_named_files(config: ServiceConfig, file: str) -> None:
    """Raise `DocumentError` about the first file that cannot be used."""
    from echelon.documents import DocumentError
    from echelon.service.api.tokens import load_tokens
    from echelon.service.hazards import hazards

    if config.api.tokens is not None:
        load_tokens(config.api.tokens)
    for key, path in _named_files(config):
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise DocumentError(file, key, f"{path}: {error.strerror or error} (check the path)") from None
    for warning in hazards(config):
        typer.echo(f"{file}: {warning}", err=True)


def _named_files(config: ServiceConfig) -> list[tuple[str, Path]]:
    """Yield certificates and keys, each with the key of the configuration that names it."""
    named: dict[Path, str] = {}
    if (tls := config.api.tls) is not None:
        for key in ("certificate", "key", "client_ca"):
            _note(named, f"api.tls.{key}", getattr(tls, key))
    for switch in config.switches.values():
        for key in ("ca", "certificate", "key"):
            _note(named, f"switches.{switch.name}.tls.{key}", getattr(switch.tls, key, None))
    return [(key, path) for path, key in named.items()]


def _note(named: dict[Path, str], key: str, path: Path | None) -> None:
    # Most switches share their files; one line about each is enough.
    if path is not None:
        named.setdefault(path, key)
