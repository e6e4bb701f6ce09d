"""Hostile programs: their grammar, and the runs that feed them to each engine."""
