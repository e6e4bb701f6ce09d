"""A worker process. It reads its assignment from standard input. `echelon.hosts.run` starts it."""

import sys

from echelon.hosts.workers.assignment import read_assignment
from echelon.hosts.workers.worker import run

if __name__ == "__main__":
    sys.exit(run(read_assignment(sys.stdin.buffer)))
