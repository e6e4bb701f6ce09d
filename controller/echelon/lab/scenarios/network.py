"""network.json: the fabric of a run and the paths of its flows, for `echelon view`.

```
{"hosts": [HOST], "switches": [SWITCH], "links": [{"a", "b", "rate_bps"}],
 "paths": {POLICY: {JOB: {FLOW: [NODE, ...]}}}}       of runs whose paths are known
```
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from echelon.lab.scenarios.results import PolicyRun

if TYPE_CHECKING:
    from echelon.lab.scenarios.scenario import Scenario


def document(scenario: Scenario, runs: Mapping[str, PolicyRun]) -> dict[str, Any]:
    """Return the document."""
    fabric = scenario.fabric
    return {
        "hosts": list(fabric.hosts),
        "switches": list(fabric.switches),
        "links": [{"a": one.a.node, "b": one.b.node, "rate_bps": one.rate_bps} for one in fabric.cables],
        "paths": {policy: run.paths for policy, run in runs.items() if run.paths},
    }


def to_text(scenario: Scenario, runs: Mapping[str, PolicyRun]) -> str:
    """Return the document as it is written: the same text for the same runs."""
    return json.dumps(document(scenario, runs), separators=(",", ":")) + "\n"
