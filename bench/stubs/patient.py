"""``python -m bench.stubs.patient COMMAND...``: run `echelon COMMAND...` without deadlines.

On a machine that is busy with other programs, switches of the same machine miss deadlines that have
nothing to do with the service. What the service takes of the processor can be measured anyway.
"""

from __future__ import annotations

from echelon.cli import main
from echelon.switches.southbound.deadlines import no_deadlines

if __name__ == "__main__":
    with no_deadlines():
        main()
