"""The training loops of ASTRA-sim 1.0: which ranks run a layer's collectives, in which order.

They are those of `Workload.cc` there. A forward pass waits for each layer's collective. The
backward pass goes from the last layer to the first. `DATA` computes the gradients of weights first,
and never waits for their collective; the loops with model parallelism compute the gradients of
inputs first, start their collective, compute the gradients of weights, start theirs, and wait for
the first one; those of transformers wait for it before the gradients of weights. A layer in
`checkpoint_initiates` repeats the forward passes since the last layer in `checkpoints`.
`HYBRID_DLRM` runs nothing but all-to-alls in the forward pass, and waits for that of the first
layer (the embeddings) at the last bottom layer; the one for their gradients starts when the
backward pass leaves the top layers. An iteration ends when everything has finished.

Differences: `MICRO` runs the collectives of all layers at the same time, as Chakra's converter
does, not only that of the first layer. The delays of updates are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from echelon_importers.workload import CollectiveKind


class Loop(NamedTuple):
    """A training loop."""

    model: str | None
    """The ranks that exchange activations: `model`, `others`, `all`, or None."""
    data: str | None
    """The ranks that exchange gradients of weights."""
    weights_first: bool = False
    """Whether the gradients of weights are computed before those of inputs."""
    first_layer: bool = False
    """Whether the first layer exchanges the gradients of its inputs, too."""
    inputs_block: bool = False
    """Whether the gradients of weights wait for the collective of those of inputs."""
    forward_only: CollectiveKind | None = None
    """The only collective that a forward pass runs; None: it runs all."""

    @property
    def has_parts(self) -> bool:
        """Return whether the loop divides the ranks into groups."""
        return not {"model", "others"}.isdisjoint((self.model, self.data))


_DLRM = Loop(
    "all",
    "all",
    weights_first=True,
    forward_only="all-to-all",
)
_TRANSFORMER = Loop(
    "model",
    "others",
    first_layer=True,
    inputs_block=True,
)
LOOPS: Mapping[str, Loop] = {
    "DATA": Loop(None, "all", weights_first=True),
    "MODEL": Loop("all", None),
    "HYBRID_DATA_MODEL": Loop("model", "others"),
    "HYBRID_MODEL_DATA": Loop("others", "model"),
    "HYBRID_TRANSFORMER": _TRANSFORMER,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _TRANSFORMER,
    "HYBRID_CUSTOMIZED": Loop(None, None),
    "HYBRID_DLRM": _DLRM,
    "HYBRID_DLRM_ENHANCED": _DLRM,
    "DISTRIBUTED_INFERENCE": Loop("all", None),
    "MICRO": Loop(None, "all"),
}
LAYER_LOOPS = ("DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA")
"""The loops that a layer of HYBRID_CUSTOMIZED may have."""
PIPELINED = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
"""The loops for which SimAI reads a number of stages."""
