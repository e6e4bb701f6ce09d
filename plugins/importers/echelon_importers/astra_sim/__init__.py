"""Text workloads of ASTRA-sim 1.0, and of SimAI, which extends them.

```
HYBRID_TRANSFORMER model_parallel_NPU_group: 4
2
Embedding  -1  300      ALLGATHER  8388608  1        NONE       0        1        NONE       0         10
Q1         -1  3145728  NONE       0        2162688  ALLREDUCE  8388608  2228224  ALLREDUCE  33554432  10
```

The first line names the training loop (`loops`) and settings (`header`), the second says how many
layers follow (`layers`). A layer has a name, a reserved number, and three times a compute time in
cycles of 1 ns, a collective and its bytes: for the forward pass, for the gradients of inputs and
for those of weights; last comes the delay of an update. (`inputs/workload/README.md` of
astra-sim/astra-sim, branch ASTRA-sim-1.0.) `stages` says what SimAI's `pp` means, `times` what
becomes of times that nothing has measured. Begin reading at `reading`.

SimAI's BROADCAST, which its simulator passes over, is imported. The bytes of an all-gather are
those that a rank has before it in ASTRA-sim (`collective/Ring.cc`), and those that it has after it
in SimAI's files. NONE with bytes sends nothing in both. `mode: 1` (AICB 2.0) is inference: a
forward pass alone.
"""

from echelon_importers.astra_sim.mesh import replicas_note
from echelon_importers.astra_sim.options import AstraSimOptions, Size
from echelon_importers.astra_sim.reading import AstraSim, SimAi

__all__ = ["AstraSim", "AstraSimOptions", "SimAi", "Size", "replicas_note"]
