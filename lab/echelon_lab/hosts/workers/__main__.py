"""A worker process.

It reads its assignment from standard input. `echelon_lab.hosts.run` starts it.
"""

import sys

from echelon_lab.hosts.workers.messages import read_assignment
from echelon_lab.hosts.workers.worker import run

if __name__ == "__main__":
    sys.exit(run(read_assignment(sys.stdin.buffer)))
