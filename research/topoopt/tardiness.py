"""``python -m research.topoopt.tardiness JOB...``: ports by bytes, as TopoOpt gives them, and by
tardiness.

The parallelisation is the given one. Of the first two columns, the one has the paper's share of
ports for all-reduces, the other the best of all shares; then weights are tardiness instead of
bytes, from either, at the paper's share alone and at all.
"""

from __future__ import annotations

import sys
from pathlib import Path

from echelon.model.jobs.spec import load_job_spec
from echelon_topoopt.parallelisations import as_in_file
from echelon_topoopt.search import Judge, topologies
from echelon_topoopt.tardiness import by_tardiness, tardiness_of, weights_of

RATE_BPS = 100 * 10**9

if __name__ == "__main__":
    print(
        "| job | ports | the paper's share, by bytes | by tardiness | all shares, by bytes | by"
        " tardiness |"
    )
    print("|---|---|---|---|---|---|")
    for file in sys.argv[1:]:
        spec = load_job_spec(Path(file))
        parallelisation = as_in_file(spec, len(spec.workers))
        for degree in (3, 4, 6):
            judge = Judge(spec, RATE_BPS)
            tried = [
                judge.candidate(parallelisation, topology)
                for topology in topologies(parallelisation, degree)
            ]
            published = tried[0]
            best = min(tried, key=lambda candidate: candidate.iteration_s)
            record, job = judge.record(parallelisation, published.topology)
            weights = weights_of(parallelisation.steps, tardiness_of(job, record))
            if weights:
                late = judge.candidate(
                    parallelisation, topologies(parallelisation, degree, weights)[0]
                )
            else:
                late = published
            last = by_tardiness(judge, best)
            times = (published, late, best, last)
            cells = " | ".join(f"{candidate.iteration_s * 1e3:.2f} ms" for candidate in times)
            print(f"| {spec.job} | {degree} | {cells} |", flush=True)
