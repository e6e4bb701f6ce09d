"""The document of a job, made of its comment.

    #SBATCH --comment=echelon:bert.yaml
    #SBATCH --comment="echelon:llama3.1-70b --parallel tp=8,pp=2 --gpu H100"

The first word is a file if it has a slash or ends with .yaml or .yml, and else a model that
`echelon job new` knows; the other words are options of that command.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from echelon.model.documents import MAX_DOCUMENT_BYTES, DocumentError, read_document
from echelon_site.slurm.slurm_job import COMMENT_PREFIX, SlurmJob

_COMMENT = "--comment"
_NEW_TIMEOUT_S = 60.0
_OUT = ("-o", "--out")


def job_document(
    job: SlurmJob,
    hosts: Sequence[str],
    gpus_per_host: int,
) -> dict[str, Any]:
    """Return the mapping to register for a job on these hosts of the fabric.

    Raises `DocumentError`, which names the comment or the file at fault.
    """
    try:
        words = shlex.split(job.comment.removeprefix(COMMENT_PREFIX))
    except ValueError as error:
        raise DocumentError(_COMMENT, "", f"{error} (close it)") from None
    if not words:
        raise DocumentError(_COMMENT, "", "names nothing (write echelon:FILE or echelon:MODEL)")
    first, *options = words
    if "/" not in first and not first.endswith((".yaml", ".yml")):
        text = _new_job(job, words, hosts, gpus_per_host)
        return {**_mapping(text, first), "job": job.name}
    if options:
        reason = f"'{options[0]}' stands behind a job file (options are for models)"
        raise DocumentError(_COMMENT, "", reason)
    path = Path(job.directory, first)
    return _placed(_mapping(_read(path, job.user), str(path)), str(path), job, hosts)


def _placed(
    document: dict[str, Any],
    file: str,
    job: SlurmJob,
    hosts: Sequence[str],
) -> dict[str, Any]:
    """Return the document with the job's name, and Slurm's hosts in the place of its workers."""
    workers = document.get("workers")
    if not isinstance(workers, list) or len(workers) != len(hosts):
        reason = (
            f"are not as many as the {len(hosts)} nodes of the job (give as many, or sbatch -N)"
        )
        raise DocumentError(file, "workers", reason, code="wrong-length")
    # A file for these very hosts has its own order of them.
    if set(map(str, workers)) != set(hosts):
        workers = list(hosts)
    return {**document, "job": job.name, "workers": workers}


def _mapping(text: str, file: str) -> dict[str, Any]:
    with NamedTemporaryFile("w", encoding="utf-8", suffix=".yaml") as copy:
        copy.write(text)
        copy.flush()
        try:
            return dict(read_document(copy.name))
        except DocumentError as error:
            raise DocumentError(file, error.path, error.reason, code=error.code) from None


# -- files of users --------------------------------------------------------------------------------


def _read(path: Path, user: int) -> str:
    """Return the text of a user's file. Raises `DocumentError`.

    Root opens it with the rights of the user. Another user of Slurm opens it with its own, and then
    it has to belong to the user of the job: messages about a file must not show other people's.
    """
    try:
        with _rights_of(user):
            # Whoever opens a pipe waits.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="utf-8") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_DOCUMENT_BYTES:
                reason = (
                    f"is not a file of at most {MAX_DOCUMENT_BYTES >> 20} MiB (name a job file)"
                )
                raise DocumentError(str(path), "", reason, code="unreadable-file")
            if os.geteuid() != 0 and status.st_uid != user:
                reason = "does not belong to the user of the job (copy it)"
                raise DocumentError(str(path), "", reason, code="unreadable-file")
            return stream.read(MAX_DOCUMENT_BYTES)
    except UnicodeDecodeError:
        raise DocumentError(str(path), "", "is not UTF-8 text", code="not-utf8") from None
    except OSError as error:
        reason = f"{error.strerror} (the controller of Slurm has to read it: check path and rights)"
        raise DocumentError(str(path), "", reason, code="unreadable-file") from None


@contextmanager
def _rights_of(user: int) -> Iterator[None]:
    """Use the rights of a user for files, if this process is root."""
    if os.geteuid() != 0:
        yield
        return
    group, groups = _groups(user)
    before = os.getegid(), os.getgroups()
    os.setgroups(groups)
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(before[0])
        os.setgroups(before[1])


def _groups(user: int) -> tuple[int, list[int]]:
    """Return the group of a user, and all groups. Raises `DocumentError` for a stranger."""
    try:
        entry = pwd.getpwuid(user)
    except KeyError:
        reason = f"user {user} is not known to the controller of Slurm (add the user there)"
        raise DocumentError(_COMMENT, "", reason) from None
    return entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)


# -- models by name --------------------------------------------------------------------------------


def _new_job(
    job: SlurmJob,
    words: Sequence[str],
    hosts: Sequence[str],
    gpus_per_host: int,
) -> str:
    """Return what `echelon job new` prints for a model and its options. Raises `DocumentError`.

    It runs with the rights of the job's user where this process is root. Of equal options it takes
    the last: the user may change the number of GPUs, and not the hosts.
    """
    model, *options = words
    for option in options:
        if option.startswith(_OUT):
            raise DocumentError(_COMMENT, option, "does not go with Slurm (leave it out)")
    gpus = str(len(hosts) * gpus_per_host)
    command = [sys.executable, "-m", "echelon", "job", "new", model, "--gpus", gpus]
    command += ["--gpus-per-host", str(gpus_per_host), *options]
    command += ["--hosts", ",".join(hosts)]
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        group, groups = _groups(job.user)
        user = {"user": job.user, "group": group, "extra_groups": groups}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_NEW_TIMEOUT_S,
            check=False,
            cwd="/",
            **user,
        )
    except subprocess.TimeoutExpired:
        reason = f"takes longer than {_NEW_TIMEOUT_S:g} s (give a job file)"
        raise DocumentError(_COMMENT, model, reason) from None
    if done.returncode:
        lines = done.stderr.splitlines() or [f"ended with status {done.returncode}"]
        raise DocumentError(_COMMENT, model, lines[-1])
    text: str = done.stdout
    return text
