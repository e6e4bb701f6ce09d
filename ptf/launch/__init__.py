"""What `run.py` is made of: a target, wires between it and the tests, ptf, a table of results."""
