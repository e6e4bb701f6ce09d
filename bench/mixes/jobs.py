"""Jobs of a cluster whose hosts have eight GPUs: models, and the layouts in which they train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from bench.laboratory import new_job_file

Document = dict[str, Any]
GPUS_OF_HOST = 8
GPU = "H100"


@dataclass(frozen=True, slots=True)
class Layout:
    """A model on so many hosts, as `echelon job new` takes it."""

    model: str
    hosts: int
    parallel: str = ""
    zero: int = 0
    micro_batches: int | None = None
    samples: int = 1
    """The seconds of a micro-batch."""
    gpus_per_host: int = GPUS_OF_HOST
    efficiency: str | None = None
    """The part of the GPU's peak, as 1/10; None: as `echelon job new` takes it."""

    def document(self, name: str, hosts: Sequence[str]) -> Document:
        """Return the job file of this layout on the given hosts."""
        peak_part = None
        if self.efficiency is not None:
            peak_part = Fraction(self.efficiency)
        text = new_job_file(
            self.model,
            gpus=self.hosts * self.gpus_per_host,
            parallel=self.parallel,
            gpu=GPU,
            zero=self.zero,
            micro_batches=self.micro_batches,
            micro_batch_samples=self.samples,
            gpus_per_host=self.gpus_per_host,
            hosts=hosts,
            efficiency=peak_part,
            name=name,
            sequence_parallel="tp=" in self.parallel,
        )
        document: Document = yaml.load(text, yaml.CSafeLoader)
        return document


@dataclass(frozen=True, slots=True)
class Decoding:
    """Serving of a mixture of experts: a decoding step, with two all-to-alls in each layer.

    The default is a model of 235 billion parameters (Qwen3-235B-A22B: hidden size 4,096, 128
    experts, of which a token takes 8) with 256 sequences on each host. A token goes to a host once,
    so to 6.45 of 16 hosts in the mean, in FP8, and comes back in BF16.
    """

    hosts: int = 16
    layers: int = 94
    attention_us: int = 150
    experts_us: int = 100
    dispatched_bytes: int = 256 * 6_450 * 4_096 // 1_000
    combined_bytes: int = 2 * dispatched_bytes
    model: str = "decode-235b"

    def document(self, name: str, hosts: Sequence[str]) -> Document:
        """Return the job file of this step on the given hosts: a graph with a rank on each."""
        nodes: list[Document] = []
        received: list[str] = []
        for layer in range(1, self.layers + 1):
            attention = self._computing(f"attention{layer}", self.attention_us, received)
            nodes += attention
            sent = f"dispatch{layer}"
            dispatch = self._all_to_all(sent, self.dispatched_bytes, _names(attention))
            nodes.append(dispatch)
            experts = self._computing(f"experts{layer}", self.experts_us, [sent])
            nodes += experts
            combined = f"combine{layer}"
            combine = self._all_to_all(combined, self.combined_bytes, _names(experts))
            nodes.append(combine)
            received = [combined]
        ranks = list(range(self.hosts))
        graph = {"groups": {"all": ranks}, "nodes": nodes}
        return {
            "job": name,
            "parallelism": "graph",
            "workers": list(hosts),
            "graph": graph,
        }

    def _computing(
        self,
        name: str,
        length_us: int,
        after: Sequence[str],
    ) -> list[Document]:
        """Return a unit of computing for each host."""
        nodes: list[Document] = []
        for rank in range(self.hosts):
            node: Document = {"name": f"{name}-{rank}", "rank": rank, "compute": f"{length_us} us"}
            if after:
                node["after"] = list(after)
            nodes.append(node)
        return nodes

    @staticmethod
    def _all_to_all(
        name: str,
        size: int,
        after: Sequence[str],
    ) -> Document:
        return {
            "name": name,
            "collective": "all-to-all",
            "group": "all",
            "bytes": f"{size} B",
            "after": list(after),
        }


def _names(nodes: Sequence[Document]) -> list[str]:
    return [node["name"] for node in nodes]


JobKind = Layout | Decoding

LLAMA_405B = Layout("llama3-405b", 32, "tp=8,pp=8,dp=4", zero=1, micro_batches=16)
LLAMA_70B = Layout("llama3-70b", 8, "tp=8,pp=4,dp=2", zero=1, micro_batches=16)
MIXTRAL = Layout("mixtral-8x7b", 4, "tp=4,ep=8", micro_batches=4)
FSDP_8B = Layout("llama3-8b", 4, zero=3)
DECODING = Decoding()


def _layouts(section: str) -> tuple[Layout, ...]:
    """Return the layouts in a section of `layouts.yaml`."""
    text = Path(__file__).with_name("layouts.yaml").read_text(encoding="utf-8")
    layouts: list[Layout] = []
    for settings in yaml.safe_load(text)[section]:
        layouts.append(Layout(**settings))
    return tuple(layouts)


MIDDLE = _layouts("middle")
"""What large mixes draw from: trainings on 2 to 16 whole hosts."""
SMALL = _layouts("small")
"""What a thousand jobs on as many hosts are drawn from: 4 to 16 GPUs, a part of each host."""
