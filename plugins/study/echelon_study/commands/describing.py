"""`echelon job new`: the job file of a model by name."""

from __future__ import annotations

from typing import Annotated

import typer

from echelon.cli import tables
from echelon.cli.usage import fail, fraction
from echelon.documents import DocumentError
from echelon_study.models import new_job_file


def new(
    model: Annotated[str, typer.Argument(help="The model, e.g. llama-7b; a wrong name lists all.", metavar="MODEL")],
    gpus: Annotated[int, typer.Option(help="Number of GPUs.", min=1)],
    parallel: Annotated[
        str,
        typer.Option(
            help="Degrees of data, tensor and pipeline parallelism. Default: data parallelism of all GPUs.",
            metavar="dp=N,tp=N,pp=N",
        ),
    ] = "",
    gpu: Annotated[str, typer.Option(help="The GPU: V100, A100 or H100.")] = "A100",
    micro_batches: Annotated[int, typer.Option(help="Micro-batches of an iteration, for each replica.", min=1)] = 1,
    micro_batch_size: Annotated[int, typer.Option(help="Samples of a micro-batch.", min=1)] = 1,
    zero: Annotated[int, typer.Option(help="Stage of ZeRO: 0, 1 or 3.")] = 0,
    gpus_per_host: Annotated[int, typer.Option(help="GPUs of each host.", min=1)] = 8,
    hosts: Annotated[
        str | None, typer.Option(help="The hosts, as h1,h2,h3. Default: h1, h2... as many as are needed.")
    ] = None,
    efficiency: Annotated[
        str, typer.Option(help="Part of the GPU's peak that computing reaches.", metavar="FRACTION")
    ] = "45%",
    name: Annotated[str | None, typer.Option(help="The job's name. Default: that of the model.")] = None,
    out: tables.OutFile = None,
) -> None:
    """Write the job file of a model that is trained on so many GPUs.

    Example: echelon job new llama-7b --gpus 64 --parallel dp=8,tp=4,pp=2 --micro-batches 16 -o job.yaml
    """
    try:
        text = new_job_file(
            model,
            gpus=gpus,
            parallel=parallel,
            gpu=gpu,
            micro_batches=micro_batches,
            micro_batch_samples=micro_batch_size,
            zero=zero,
            gpus_per_host=gpus_per_host,
            hosts=None if hosts is None else [host.strip() for host in hosts.split(",")],
            efficiency=fraction("--efficiency", efficiency),
            name=name,
        )
    except DocumentError as error:
        fail(str(error))
    tables.write_text(text, out)
