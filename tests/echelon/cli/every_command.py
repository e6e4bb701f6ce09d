"""Run in a process of its own: `python every_command.py closed|open` reads lists of arguments as
JSON from standard input, runs `echelon` with each, and prints status, standard output and standard
error of each as JSON.

Each command is forked off, so that the command line is imported only once. With `closed`, nobody
reads its output.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import IO, NoReturn

import typer

from echelon.cli import app

_echelon = typer.main.get_command(app)


def run(arguments: list[str], *, closed: bool) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error of the command line with
    `arguments`.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = os.fork()
        if not process:
            _child(arguments, out, err, closed)
        _, status = os.waitpid(process, 0)
        return os.waitstatus_to_exitcode(status), _text(out), _text(err)


def _child(arguments: list[str], out: IO[bytes], err: IO[bytes], closed: bool) -> NoReturn:
    status = 70
    try:
        if closed:
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, 1)
        else:
            os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _echelon(arguments, prog_name="echelon")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


if __name__ == "__main__":
    wanted = json.load(sys.stdin)
    json.dump([run(arguments, closed=sys.argv[1] == "closed") for arguments in wanted], sys.stdout)
