"""Figures of TopoOpt (NSDI '23), ours beside theirs."""
