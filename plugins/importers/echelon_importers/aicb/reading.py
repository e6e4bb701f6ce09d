"""The importer of AICB's files: a communication list, or a text workload for SimAI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from echelon_importers import astra_sim
from echelon_importers.aicb.iterations import Iterations
from echelon_importers.aicb.mesh import ranks_of_list
from echelon_importers.aicb.options import AicbOptions
from echelon_importers.aicb.rows import read_sections
from echelon_importers.importer import Importer, Source
from echelon_importers.workload import Workload


class Aicb(Importer[AicbOptions]):
    """A communication list (`.csv`) or SimAI workload (`.txt`) of AICB."""

    Options: ClassVar[type[astra_sim.AstraSimOptions]] = AicbOptions

    def read(self, sources: Sequence[Source]) -> Workload:
        source = self.only(sources)
        beginning = source.text()[:1000]
        if not re.match(r"\s*(\[|comm_type)", beginning):
            return astra_sim.SimAi(self.options).read(sources)
        sections = list(read_sections(source))
        mesh = ranks_of_list(self, source, sections)
        return Iterations(source, sections, mesh, self.options).run()
