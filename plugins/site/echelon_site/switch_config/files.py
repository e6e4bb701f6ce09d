"""The files of configurations: one for each switch, named by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from echelon.model.documents import DocumentError
from echelon_site.switch_config.dialects import Config, Dialect


def current_file(against: Path, switch: str, dialect: Dialect) -> Path:
    """Return the file with the configuration of a switch: in a directory, that with its name."""
    if against.is_dir():
        return against / f"{switch}.{dialect.suffix}"
    return against


def read_config(path: Path, dialect: Dialect) -> Config:
    """Return the configuration in a file. Raises `DocumentError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = f"{error.strerror or error} (name a file, or a directory with one a switch)"
        raise DocumentError(str(path), "", reason, code="unreadable-file") from None
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8 text (save the file as UTF-8)"
        raise DocumentError(str(path), "", reason, code="not-utf8") from None
    return dialect.parse(text, str(path))


def write_configs(out: Path, configs: Mapping[str, Config], dialect: Dialect) -> list[Path]:
    """Write a file for each switch into a directory, and return them.

    Raises `DocumentError` before anything is written if one of them is there.
    """
    paths = {switch: out / f"{switch}.{dialect.suffix}" for switch in configs}
    try:
        for path in paths.values():
            if path.exists():
                reason = "exists already (move it away, or name another directory)"
                raise DocumentError(str(path), "", reason, code="name-taken")
        out.mkdir(parents=True, exist_ok=True)
        for switch, path in paths.items():
            path.write_text(dialect.text(configs[switch]), encoding="utf-8")
    except OSError as error:
        reason = f"{error.strerror or error} (name a directory to write to)"
        raise DocumentError("--out", str(error.filename or out), reason) from None
    return list(paths.values())
