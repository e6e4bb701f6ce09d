"""Runs of a scenario in virtual time.

They go packet by packet through embedded switches, or on the fluid model.
"""
