"""`echelon job new`: the job file of a model by name."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from echelon.cli import tables
from echelon.cli.usage import fail, fraction
from echelon.model.documents import DocumentError
from echelon.model.quantities import QuantityError, rate_bps
from echelon_lab.models.options import new_job_file

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="The model, e.g. llama-7b, or its config.json; a wrong name lists all.",
        metavar="MODEL",
    ),
]
GpusOption = Annotated[int, typer.Option(help="Number of GPUs.", min=1)]
ParallelOption = Annotated[
    str,
    typer.Option(
        help=(
            "Degrees of data, tensor, pipeline, context and expert parallelism; etp=1 for whole"
            " experts, and shard for the replicas of a group of HSDP. Default: data of all GPUs."
        ),
        metavar="dp=N,tp=N,pp=N,cp=N,ep=N,etp=1,shard=N",
    ),
]
GpuOption = Annotated[
    str,
    typer.Option(
        help=(
            "V100, A100, H100, H200, B200, GB200, MI300X, TPU-v5p, TPU-v6e, or your own: TFLOP/s,"
            " and GB/s of links and memory."
        ),
        metavar="GPU|peak=N,local=N,memory=N",
    ),
]
GlobalBatchOption = Annotated[
    int | None,
    typer.Option(
        help="Samples of an iteration, of all replicas.",
        min=1,
    ),
]
MicroBatchesOption = Annotated[
    int | None,
    typer.Option(
        help="Instead, micro-batches for each replica. Default: 1; in a pipeline 8.",
        min=1,
    ),
]
MicroBatchSizeOption = Annotated[
    int,
    typer.Option(
        help="Samples of a micro-batch.",
        min=1,
    ),
]
ZeroOption = Annotated[int, typer.Option(help="Stage of ZeRO: 0 to 3.")]
SequenceParallelOption = Annotated[
    bool, typer.Option("--sequence-parallel", help="Divide sequences within tensor groups.")
]
InterleaveOption = Annotated[
    int,
    typer.Option(
        help="Chunks of the model in each stage of a pipeline.",
        min=1,
    ),
]
RecomputeOption = Annotated[
    str,
    typer.Option(help="What the backward pass computes anew: none, selective (attention) or full."),
]
DispatchOption = Annotated[
    str,
    typer.Option(
        help=(
            "Copies of a token that leave a host: for each of its experts, or each host with some:"
            " each or host."
        )
    ),
]
OverlapOption = Annotated[bool, typer.Option(help="Sum gradients during the backward pass.")]
FlashOption = Annotated[bool, typer.Option(help="FlashAttention, which keeps no scores.")]
GpusPerHostOption = Annotated[
    int | None,
    typer.Option(
        help="GPUs of each host. Default: 8; of a GB200 the 72 of a rack, of TPUs none.",
        min=1,
    ),
]
SequenceOption = Annotated[
    int | None,
    typer.Option(
        help="Tokens of a sample. Default: as in the model's pre-training.",
        min=1,
        max=10_000_000,
    ),
]
BlockingOption = Annotated[
    bool,
    typer.Option(
        "--blocking",
        help="A stage waits for what it sends, as with Megatron-LM's 1F1B and DeepSpeed.",
    ),
]
NicOption = Annotated[
    str | None,
    typer.Option(
        help="Line rate of each GPU's NIC. The comments then predict an iteration, with a range.",
        metavar="RATE",
    ),
]
HostTimeOption = Annotated[
    str,
    typer.Option(
        help=(
            "What hosts need to launch kernels, as a part of what PyTorch needs: 0 for compiled"
            " or captured graphs."
        ),
        metavar="FRACTION",
    ),
]
HostsOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "The hosts, as h1,h2,h3 or h[1-3], every second of them as h[1-31/2]. Default: h1,"
            " h2... as many as are needed."
        )
    ),
]
EfficiencyOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "Part of the GPU's peak that matrix multiplications reach."
            " Default: as measured on that GPU."
        ),
        metavar="FRACTION",
    ),
]
NameOption = Annotated[str | None, typer.Option(help="The job's name. Default: that of the model.")]


def new(
    model: ModelArgument,
    gpus: GpusOption,
    parallel: ParallelOption = "",
    gpu: GpuOption = "A100",
    global_batch: GlobalBatchOption = None,
    micro_batches: MicroBatchesOption = None,
    micro_batch_size: MicroBatchSizeOption = 1,
    zero: ZeroOption = 0,
    sequence_parallel: SequenceParallelOption = False,
    interleave: InterleaveOption = 1,
    blocking: BlockingOption = False,
    recompute: RecomputeOption = "none",
    dispatch: DispatchOption = "each",
    overlap: OverlapOption = True,
    flash: FlashOption = True,
    gpus_per_host: GpusPerHostOption = None,
    sequence: SequenceOption = None,
    nic: NicOption = None,
    host_time: HostTimeOption = "1",
    hosts: HostsOption = None,
    efficiency: EfficiencyOption = None,
    name: NameOption = None,
    out: tables.OutFile = None,
) -> None:
    """Write the job file of a model that is trained on so many GPUs.

    Example: echelon job new llama-7b --gpus 64 --parallel dp=8,tp=4,pp=2 --global-batch 128 -o job.yaml
    """
    try:
        listed = None
        if hosts is not None:
            listed = host_names(hosts)
        peak_share = None
        if efficiency is not None:
            peak_share = fraction("--efficiency", efficiency)
        nic_bps = None
        if nic is not None:
            nic_bps = _rate("--nic", nic)
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
            sequence=sequence,
            nic_bps=nic_bps,
            host_time=fraction("--host-time", host_time),
            hosts=listed,
            efficiency=peak_share,
            name=name,
            recompute=recompute,
            dispatch=dispatch,
            warn=lambda text: typer.echo(f"warning: {text}", err=True),
            sequence_parallel=sequence_parallel,
            chunks=interleave,
            blocking=blocking,
            overlap=overlap,
            flash=flash,
        )
    except DocumentError as error:
        fail(str(error))
    tables.write_text(text, out)


def _rate(option: str, text: str) -> int:
    """Return a rate in bits a second. Raises `DocumentError` about `option`."""
    try:
        return rate_bps(text)
    except QuantityError as error:
        raise DocumentError(option, "", str(error)) from None


_RANGE = re.compile(
    r"(?P<before>[^\[\],]*)"
    r"\[(?P<first>\d+)-(?P<last>\d+)(?:/(?P<step>[1-9]\d*))?\]"
    r"(?P<after>[^\[\],]*)"
)
_MOST = 100_000
"""The most numbers of a range."""


def host_names(text: str) -> list[str]:
    """Return the hosts of a list such as ``h1,h[3-5],g[01-31/2]``, in the notation of ClusterShell.

    Numbers are as wide as the first of a range. Raises `DocumentError`.
    """
    names: list[str] = []
    for word in text.split(","):
        names += _expanded(word.strip())
    return names


def _expanded(word: str) -> list[str]:
    """Return the hosts of one word of the list: a name, or a name with a range."""
    match = _RANGE.fullmatch(word)
    if match is None:
        if "[" in word or "]" in word:
            raise DocumentError(
                "--hosts", "", f"'{word}' is not a range of hosts (write h[1-16], or h[1-31/2])"
            )
        return [word]
    first = int(match["first"])
    last = int(match["last"])
    if not first <= last < first + _MOST:
        raise DocumentError(
            "--hosts",
            "",
            f"'{word}' ends before it begins, or has more than {_MOST:,} hosts (write h[1-16])",
        )
    width = len(match["first"])
    step = int(match["step"] or 1)
    hosts = []
    for number in range(first, last + 1, step):
        hosts.append(f"{match['before']}{number:0{width}d}{match['after']}")
    return hosts
