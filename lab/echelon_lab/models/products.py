"""Products of matrices, and what a GPU executes of them: tiles in whole waves.

A GPU cuts the result of a product into tiles, and each of its multiprocessors computes a tile at a
time. A tile that is partly outside the result takes as long as a whole one, and so does a wave that
leaves multiprocessors without a tile (NVIDIA, Matrix Multiplication Background User's Guide,
chapters 2.3 and 3: tile and wave quantisation).

The tile is the largest that the guide names for cuBLAS, 256 x 128. It is that of the A100, and
carried over to other GPUs. A GPU without a number of multiprocessors here (TPUs, and those that are
given by their rates) executes what the product needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

TILE = (256, 128)
Cut = Literal["columns", "inner", "batch", "nothing"]


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` products of `rows` x `inner` by `inner` x `columns` at once."""

    rows: int
    columns: int
    inner: int
    batch: int = 1
    cut: Cut = "nothing"
    """The dimension that tensor parallelism cuts: `batch` are heads of attention."""
    is_expert: bool = False
    """Whether `batch` are experts, of which each has `rows` tokens."""

    @property
    def flops(self) -> int:
        """Return the operations; a multiplication with an addition is two."""
        return 2 * self.batch * self.rows * self.columns * self.inner

    @property
    def is_attention(self) -> bool:
        """Return whether heads multiply activations, rather than activations weights."""
        return self.cut == "batch"

    def gradients(self) -> tuple[Product, Product]:
        """Return the products of the backward pass: the gradients of both factors."""
        left = replace(self, columns=self.inner, inner=self.columns)
        right = replace(self, rows=self.inner, inner=self.rows)
        return left, right

    def on_gpu(
        self,
        samples: int,
        tensor: int,
        context: int,
        expert: int,
    ) -> Product:
        """Return the part of it on one GPU, for so many samples in groups of these sizes."""
        rows = _up(self.rows, context)
        batch = self.batch
        if self.is_attention:
            batch *= samples
        else:
            rows *= samples
        if self.is_expert:
            # A replica has its part of the experts, with the tokens of its whole group.
            rows *= expert
            batch = _up(batch, expert)

        columns, inner = self.columns, self.inner
        if self.cut == "columns":
            columns = _up(columns, tensor)
        elif self.cut == "inner":
            inner = _up(inner, tensor)
        elif self.cut == "batch":
            batch = _up(batch, tensor)
        return replace(self, rows=rows, columns=columns, inner=inner, batch=batch)

    def tiles(self) -> int:
        """Return the number of tiles, with their longer side along that of the result."""
        tile_long, tile_short = TILE
        along = _up(max(self.rows, self.columns), tile_long)
        across = _up(min(self.rows, self.columns), tile_short)
        return self.batch * along * across

    def waves(self, multiprocessors: int) -> int:
        """Return the number of times that so many multiprocessors compute a tile each."""
        return _up(self.tiles(), multiprocessors)

    def executed_flops(self, multiprocessors: int | None) -> Fraction:
        """Return the operations of whole waves of whole tiles."""
        if multiprocessors is None:
            return Fraction(self.flops)
        tile_long, tile_short = TILE
        tile_flops = 2 * tile_long * tile_short * self.inner
        return Fraction(self.waves(multiprocessors) * multiprocessors * tile_flops)


def feed_forward_products(
    sequence: int,
    hidden: int,
    width: int,
    *,
    is_gated: bool,
    experts: int = 1,
    active: int = 1,
) -> tuple[Product, ...]:
    """Return the products of a feed-forward layer, or of `experts` with equal parts of the tokens.

    Each token goes to `active` of the experts, which are multiplied at once.
    """
    raised = width
    if is_gated:
        raised = 2 * width
    has_experts = experts > 1
    rows = _up(sequence * active, experts)
    return (
        Product(rows, raised, hidden, batch=experts, cut="columns", is_expert=has_experts),
        Product(rows, hidden, width, batch=experts, cut="inner", is_expert=has_experts),
    )


def _up(size: int, parts: int) -> int:
    return -(-size // parts)
