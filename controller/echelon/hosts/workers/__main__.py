"""A worker: reads its assignment from standard input. Started by `echelon.hosts.run`."""

import sys

from echelon.hosts.workers.assignment import read_assignment
from echelon.hosts.workers.worker import run

if __name__ == "__main__":
    sys.exit(run(read_assignment(sys.stdin.buffer)))
