"""Job files at the scale of a laboratory, and the command that writes them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import yaml

from echelon.model.documents import DocumentError
from echelon.model.jobs.spec import JobSpec, load_job_spec, make_job_spec
from echelon_lab.hosts.serving import document

FACTOR = "ECHELON_LAB_SCALE"
"""The environment variable with the factor of rates and sizes of a laboratory."""
_SIZE = re.compile(r"(\d+) B")


def smaller(spec: JobSpec, factor: Fraction) -> JobSpec:
    """Return the job with all sizes of its section times `factor`, in whole bytes."""
    keys = document(spec)
    keys[spec.parallelism] = _smaller(keys[spec.parallelism], factor)
    return make_job_spec(**keys)


def _smaller(value: Any, factor: Fraction) -> Any:
    if isinstance(value, Mapping):
        return {key: _smaller(item, factor) for key, item in value.items()}
    if isinstance(value, list):
        return [_smaller(item, factor) for item in value]
    if not isinstance(value, str):
        return value
    size = _SIZE.fullmatch(value)
    if size is None:
        return value
    smaller_bytes = round(int(size[1]) * factor)
    # No flow is scaled away: other steps wait for its end.
    return f"{max(1, smaller_bytes)} B"


def main() -> None:
    """Print a job file at the laboratory's scale: its command `scaled`."""
    if len(sys.argv) != 2:
        sys.exit("scaled: give the name of one job file")
    factor = Fraction(os.environ[FACTOR])
    try:
        spec = smaller(load_job_spec(sys.argv[1]), factor)
    except DocumentError as error:
        sys.exit(f"scaled: {error}")
    print(yaml.safe_dump(document(spec), sort_keys=False), end="")


if __name__ == "__main__":
    main()
