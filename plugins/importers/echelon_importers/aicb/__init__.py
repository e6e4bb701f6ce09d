"""Communication lists of AICB (aliyun/aicb), in CSV, and the text workloads that AICB writes for
SimAI.

```
[rank0 ~ rank127]
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count
CommType.all_reduce,CommGroup.tp_group,8,20971520,forward.MegatronRowLinear,None,None,,None,None,None,1
CommType.epoch_end,None,None,0,,None,None,,None,None,None,1
```

All ranks of a section do what its rows say, one after the other; with pipeline parallelism there is
a section for each stage. The first epoch sets the job up. Each later one is an iteration.

Ranks are numbered as Megatron-LM does it: those of a tensor-parallel group follow each other, then
come the groups of experts, the data-parallel replicas and the stages of the pipeline. The bytes of
a row are those that `workload_applyer.py` passes on: all of an all-gather's output and all of a
reduce-scatter's input. Most lists have no rows of computing; `computing` is then what each rank
computes, in equal parts after its rows. A row of computing without a measured time has the shapes
of two matrices, which a `gpu` multiplies as fast as was measured.

With hosts for fewer ranks than the list has, fewer data-parallel replicas are imported, with the
bytes that the list says.
"""

from echelon_importers.aicb.options import AicbOptions
from echelon_importers.aicb.reading import Aicb

__all__ = ["Aicb", "AicbOptions"]
