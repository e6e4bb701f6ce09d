"""`echelon job new`: the job file of a model by name."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from echelon.cli import tables
from echelon.cli.usage import fail, fraction
from echelon.model.documents import DocumentError
from echelon_lab.models import new_job_file


def new(
    model: Annotated[
        str,
        typer.Argument(help="The model, e.g. llama-7b; a wrong name lists all.", metavar="MODEL"),
    ],
    gpus: Annotated[int, typer.Option(help="Number of GPUs.", min=1)],
    parallel: Annotated[
        str,
        typer.Option(
            help=(
                "Degrees of data, tensor, pipeline, context and expert parallelism. Default: data"
                " of all GPUs."
            ),
            metavar="dp=N,tp=N,pp=N,cp=N,ep=N",
        ),
    ] = "",
    gpu: Annotated[
        str,
        typer.Option(
            help=(
                "V100, A100, H100, H200, B200, MI300X, TPU-v5p, or your own: TFLOP/s, and GB/s of"
                " links and memory."
            ),
            metavar="GPU|peak=N,local=N,memory=N",
        ),
    ] = "A100",
    global_batch: Annotated[
        int | None, typer.Option(help="Samples of an iteration, of all replicas.", min=1)
    ] = None,
    micro_batches: Annotated[
        int | None,
        typer.Option(
            help="Instead, micro-batches for each replica. Default: 1; in a pipeline 8.", min=1
        ),
    ] = None,
    micro_batch_size: Annotated[int, typer.Option(help="Samples of a micro-batch.", min=1)] = 1,
    zero: Annotated[int, typer.Option(help="Stage of ZeRO: 0 to 3.")] = 0,
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="Of a tensor group.")
    ] = False,
    interleave: Annotated[
        int, typer.Option(help="Chunks of the model in each stage of a pipeline.", min=1)
    ] = 1,
    recompute: Annotated[
        str,
        typer.Option(
            help="What the backward pass computes anew: none, selective (attention) or full."
        ),
    ] = "none",
    overlap: Annotated[bool, typer.Option(help="Sum gradients during the backward pass.")] = True,
    flash: Annotated[bool, typer.Option(help="FlashAttention, which keeps no scores.")] = True,
    gpus_per_host: Annotated[int, typer.Option(help="GPUs of each host.", min=1)] = 8,
    hosts: Annotated[
        str | None,
        typer.Option(
            help=(
                "The hosts, as h1,h2,h3 or h[1-3], every second of them as h[1-31/2]. Default: h1,"
                " h2... as many as "
                "are needed."
            )
        ),
    ] = None,
    efficiency: Annotated[
        str | None,
        typer.Option(
            help=(
                "Part of the GPU's peak that matrix multiplications reach. Default: as measured on"
                " that GPU."
            ),
            metavar="FRACTION",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The job's name. Default: that of the model.")
    ] = None,
    out: tables.OutFile = None,
) -> None:
    """Write the job file of a model that is trained on so many GPUs.

    Example: echelon job new llama-7b --gpus 64 --parallel dp=8,tp=4,pp=2 --global-batch 128 -o job.yaml
    """
    try:
        text = new_job_file(
            model,
            gpus=gpus,
            parallel=parallel,
            gpu=gpu,
            micro_batches=micro_batches,
            micro_batch_samples=micro_batch_size,
            global_batch=global_batch,
            zero=zero,
            gpus_per_host=gpus_per_host,
            hosts=None if hosts is None else host_names(hosts),
            efficiency=None if efficiency is None else fraction("--efficiency", efficiency),
            name=name,
            recompute=recompute,
            warn=lambda text: typer.echo(f"warning: {text}", err=True),
            sequence_parallel=sequence_parallel,
            chunks=interleave,
            overlap=overlap,
            flash=flash,
        )
    except DocumentError as error:
        fail(str(error))
    tables.write_text(text, out)


_RANGE = re.compile(
    r"(?P<before>[^\[\],]*)\[(?P<first>\d+)-(?P<last>\d+)(?:/(?P<step>[1-9]\d*))?\](?P<after>[^\[\],]*)"
)
_MOST = 100_000


def host_names(text: str) -> list[str]:
    """Return the hosts of a list such as ``h1,h[3-5],g[01-31/2]``, in the notation of ClusterShell;
    numbers are as wide as the first of a range. Raises `DocumentError`."""
    names: list[str] = []
    for word in (word.strip() for word in text.split(",")):
        of = _RANGE.fullmatch(word)
        if of is None and ("[" in word or "]" in word):
            raise DocumentError(
                "--hosts", "", f"'{word}' is no range of hosts (write h[1-16], or h[1-31/2])"
            )
        if of is None:
            names.append(word)
            continue
        first = int(of["first"])
        last = int(of["last"])
        if not first <= last <= first + _MOST:
            raise DocumentError(
                "--hosts",
                "",
                f"'{word}' has no end after its beginning that is near (write h[1-16])",
            )
        numbers = range(first, last + 1, int(of["step"] or 1))
        names += [f"{of['before']}{number:0{len(of['first'])}d}{of['after']}" for number in numbers]
    return names
