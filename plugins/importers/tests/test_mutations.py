"""Damaged files: every importer refuses in one line, or reads what the damaged file says."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from echelon.model.documents import DocumentError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon_importers import Source, Workload
from echelon_importers.convert import convert
from plugins.importers.tests.pipeline_traces import one_forward_one_backward, traces
from plugins.importers.tests.test_pytorch import all_reduce, execution, kernel, kineto, recorded
from plugins.importers.tests.test_simai import PIPELINE as STAGES
from plugins.importers.tests.test_simai import gpt
from plugins.importers.tests.test_simai import text as simai_text
from plugins.importers.tests.test_texts import HEAD, LAYERS, PIPELINE
from plugins.importers.tests.traces import split, two_ranks
from tests.drawing import examples

DATA = Path(__file__).parent / "workloads"
WORDS = (
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"99999999999999999999999",
    b"\x00",
    b"{",
    b"[" * 5000,
    b"\xff",
    b"'",
    b"",
    b" ",
)


def text(words: str) -> list[Source]:
    return [Source("file", words.encode())]


def graph() -> list[Source]:
    lines = (DATA / "vgg16.graph.txt").read_text().splitlines()
    return text(
        "\n".join(
            line for line in lines if not line.startswith("node1 ") and "node1 --" not in line
        )
    )


def same_rows(sources: Sequence[Source], workload: Workload) -> None:
    """Check that the collectives and sends of a list are those of the lines in their names."""
    lines = re.split(r"\r\n|\r|\n|\v|\f|[\x1c-\x1e\x85\u2028\u2029]", sources[0].data.decode())
    for node in workload.nodes:
        assert not isinstance(node, ComputeUnit)
        words = lines[int(node.name.split("-")[0][1:]) - 1].replace('"', "").split(",")
        assert int(words[3]) == node.size_bytes
        if isinstance(node, CollectiveStep):
            assert words[0].removeprefix("CommType.").replace("_", "-").startswith(node.operation)


def same_layers(sources: Sequence[Source], workload: Workload) -> None:
    """Check that the times and bytes of a text are those of the layers in the names of nodes."""
    lines = [line.split() for line in sources[0].data.decode().splitlines() if line.split()]
    for node in workload.nodes:
        phase, layer, *_ = node.name.split("-")
        column = {"fwd": 2, "ig": 5, "wg": 8}[phase]
        words = lines[1 + int(layer)]
        if isinstance(node, CollectiveStep):
            factor = len(node.group) if node.operation == "all-gather" else 1
            assert node.size_bytes == factor * int(words[column + 2])
            assert words[column + 1].split("_")[0] == node.operation.replace("-", "").upper()


def same_times(sources: Sequence[Source], workload: Workload) -> None:
    """Check that a pipeline computes for as long as its profile says, for each mini-batch."""
    said = re.findall(
        r"^\S.*?_time=([\d.]+), \w+_time=([\d.]+), ", sources[0].data.decode(), re.MULTILINE
    )
    total = sum((Fraction(time) for times in said for time in times), Fraction(0)) / 1000
    computed = sum(
        (node.duration_s for node in workload.nodes if isinstance(node, ComputeUnit)), Fraction(0)
    )
    assert computed <= total * workload.tally.derived["mini-batches"]


def same_attributes(sources: Sequence[Source], workload: Workload) -> None:
    """Check that the bytes of a trace are those that the protobuf library reads."""
    sizes = {
        attribute.int64_val
        for source in sources
        if not source.data.startswith(b"{")
        for node in split(source.data)
        for attribute in node.attr
        if attribute.name == "comm_size"
    }
    for node in workload.nodes:
        if isinstance(node, Flow) or (
            isinstance(node, CollectiveStep) and node.operation != "barrier"
        ):
            factor = len(node.group) if isinstance(node, CollectiveStep) else 1
            assert node.size_bytes in sizes or node.size_bytes in {size * factor for size in sizes}


WIDTHS = (1, 2, 4, 8, 16)


def same_elements(sources: Sequence[Source], workload: Workload) -> None:
    """Check that the bytes of PyTorch's traces are those of elements in the files."""
    numbers = {int(word) for source in sources for word in re.findall(r"\d+", source.data.decode())}
    for node in workload.nodes:
        is_ready = node.name.startswith("ready-")
        if isinstance(node, Flow):
            assert node.size_bytes in {number * width for number in numbers for width in WIDTHS}
        elif isinstance(node, CollectiveStep) and node.operation != "barrier" and not is_ready:
            ranks = len(node.group)
            assert any(
                node.size_bytes == number * width * factor
                for number in numbers
                for width in (1, 2, 4, 8, *(n for n in numbers if n < 100))
                for factor in (1, ranks)
            )


Check = Callable[[Sequence[Source], Workload], None]
CASES: dict[str, tuple[str, list[Source], dict[str, object], Check]] = {
    "aicb": ("aicb", text(PIPELINE), {"computing": "0 s"}, same_rows),
    "astra-sim": (
        "astra-sim",
        text(HEAD.format("HYBRID_DATA_MODEL") + LAYERS),
        {"model": "2"},
        same_layers,
    ),
    "simai": (
        "simai",
        text(HEAD.format("HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 1") + LAYERS),
        {},
        lambda *_: None,
    ),
    "stages": ("simai", text(simai_text(STAGES, gpt(2, 2, 2000))), {}, lambda *_: None),
    "chakra": ("chakra", two_ranks(), {}, same_attributes),
    "pipedream": ("pipedream", graph(), {"bandwidth": "10 Gbit/s"}, same_times),
    "kineto": (
        "pytorch",
        [kineto(kernel(0, 10), all_reduce(10, 50), kernel(15, 20))],
        {},
        same_elements,
    ),
    "kineto pipeline": (
        "pytorch",
        traces(one_forward_one_backward(2, 2)),
        {},
        same_elements,
    ),
    "execution": (
        "pytorch",
        [
            execution(
                recorded("allreduce", 10), recorded("_allgather_base", 30), recorded("wait", 1)
            )
        ],
        {"computing": "0 s"},
        same_elements,
    ),
}
HOSTS = {"astra-sim": 4, "simai": 4, "pipedream": 3, "execution": 2}


def damaged(rng: random.Random, data: bytes) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice((1, 1, 2, 8, 40))
    other = rng.randrange(len(data))
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + length :]
        case 2:
            return data[:at] + data[other : other + length] + data[at:]
        case 3:
            return data[:at] + rng.randbytes(rng.choice((1, 4))) + data[at + 1 :]
        case 4:
            numbers = [found.span() for found in re.finditer(rb"[\w.]+", data)]
            start, end = rng.choice(numbers)
            return data[:start] + rng.choice(WORDS) + data[end:]
        case _:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


@pytest.mark.parametrize("case", CASES)
def test_damaged_files_are_refused_or_read_as_they_are(case: str) -> None:
    format_name, sources, options, check = CASES[case]
    hosts = tuple(f"h{number}" for number in range(1, HOSTS.get(case, 0) + 1))
    check(sources, convert(format_name, sources, "job", hosts=hosts, options=options).workload)
    rng = random.Random(case)
    refused = 0
    for _ in range(examples(200)):
        at = rng.randrange(len(sources))
        files = [*sources]
        files[at] = replace(files[at], data=damaged(rng, files[at].data))
        refusal: DocumentError | None = None
        try:
            made = convert(format_name, files, "job", hosts=hosts, options=options)
        except DocumentError as error:
            refusal = error
        if refusal is None:
            check(files, made.workload)
            continue
        refused += 1
        assert refusal.file in {file.name for file in files}
        assert len(str(refusal).splitlines()) == 1
        assert refusal.reason
    assert refused > examples(200) // 4


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    for format_name in ("chakra", "pytorch"):
        deep = b'{"nodes": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        with pytest.raises(DocumentError):
            convert(format_name, [Source("deep.json", deep)], "job", hosts=("h1", "h2"))
    assert json.loads(kineto(kernel(0, 1)).data)
