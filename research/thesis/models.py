"""The four models of the thesis: what they send in an iteration, and how their gradients leave the
backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from echelon_lab.models.catalogue import find_model
from research.thesis.published import TABLE_3_1

FUSION_BYTES = 64 * 2**20
"""Size of Horovod's fusion buffer, 64 MiB by default: the bytes of gradients in one all-reduce (A.
Sergeev and M. Del Balso, Horovod, arXiv:1802.05799, section 4; HOROVOD_FUSION_THRESHOLD)."""
FORWARD_PART = Fraction(1, 3)
"""Part of the compute time; the backward pass takes twice as long as the forward pass (J. Kaplan et
al., Scaling Laws for Neural Language Models, arXiv:2001.08361, section 2.1: 2 operations per
parameter and token forward, 4 backward)."""
PARAMETER_BYTES = 4


@dataclass(frozen=True, slots=True)
class ThesisModel:
    """A model of Table 2.1."""

    name: str
    title: str
    parameters: int

    @property
    def gradient_bytes(self) -> int:
        """Bytes that are all-reduced in an iteration."""
        return PARAMETER_BYTES * self.parameters

    @property
    def zero_load_s(self) -> Fraction:
        """The iteration time without cross traffic in Table 3.1, in seconds."""
        return TABLE_3_1[self.name].iteration_s

    @property
    def buckets(self) -> int:
        """Number of all-reduces of an iteration: as many as it takes to send the gradients by
        fusion buffers.
        """
        return -(-self.gradient_bytes // FUSION_BYTES)

    def sent_bytes(self, workers: int) -> Fraction:
        """Return what each of `workers` sends in an iteration, by equation 3.1."""
        return Fraction(2 * (workers - 1), workers) * self.gradient_bytes


def _model(name: str, title: str) -> ThesisModel:
    return ThesisModel(name, title, find_model(name).parameters)


MODELS: Mapping[str, ThesisModel] = {
    model.name: model
    for model in (
        # Not Table 2.1's 366,428,986: see the errata in `published`.
        _model("bert-large", "BERT-large"),
        # Table 2.1's, which is 100 less than the layers have.
        ThesisModel("vgg-16", "VGG-16", 138_357_444),
        _model("densenet-161", "DenseNet-161"),
        _model("resnet-50", "ResNet-50"),
    )
}
"""The models by name, largest first."""
