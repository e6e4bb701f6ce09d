"""A worker: reads its assignment from standard input. Started by `echelon.testbed.hosts_run`."""

import sys

from echelon.testbed.workers.assignment import read_assignment
from echelon.testbed.workers.worker import run

if __name__ == "__main__":
    sys.exit(run(read_assignment(sys.stdin.buffer)))
