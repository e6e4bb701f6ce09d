"""The process of the emulated hosts of a laboratory, which reads its workplace from its input."""

import pickle
import sys

from echelon_lab.living.workers import run

if __name__ == "__main__":
    # From the process that started this one: a pickle can hold anything.
    run(pickle.load(sys.stdin.buffer))
