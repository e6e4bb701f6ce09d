"""The registration of one job of Slurm, and the note that tells its user how it went."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from echelon.cli.jobs import REFUSALS
from echelon.controller.client import Client, ClientError
from echelon.model.documents import DocumentError
from echelon_site.slurm.differences import REFUSED
from echelon_site.slurm.job_document import job_document
from echelon_site.slurm.slurmctld import SlurmError, node_names, write_note

if TYPE_CHECKING:
    from echelon_site.slurm.settings import Settings
    from echelon_site.slurm.slurm_job import SlurmJob


def fabric_hosts(job: SlurmJob, settings: Settings) -> list[str]:
    """Return the hosts of a job in the fabric, in the order of Slurm. Raises `SlurmError`."""
    return [settings.host(node) for node in node_names(job.nodes)]


def register(
    client: Client,
    settings: Settings,
    job: SlurmJob,
) -> str | None:
    """Register a job and note how it went. Return why it is not registered; None: it is."""
    reason = None
    try:
        hosts = fabric_hosts(job, settings)
        document = job_document(job, hosts, settings.gpus_per_host)
        # Of the same number, but of another start, on other nodes.
        client.register_job(document, replace=True)
    except DocumentError as error:
        reason = f"{REFUSED}{error}"
    except ClientError as error:
        if error.status in REFUSALS:
            reason = f"{REFUSED}{error}"
        else:
            reason = f"Echelon may not know the job yet: {error}"
    except SlurmError as error:
        reason = f"Echelon does not know the job yet: {error}"
    except Exception as error:
        # A file that nobody foresaw must not keep the jobs of others out.
        reason = f"{REFUSED}{type(error).__name__}: {error}"
    try:
        write_note(job, reason or f"Echelon knows the job as {job.name}")
    except SlurmError as error:
        print(f"the note of {job.name} is not written: {error}", file=sys.stderr)
    return reason
