"""The parts of `run.py`: wires between the switch and the tests, and a table of results."""
