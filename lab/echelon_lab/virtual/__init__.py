"""Runs of a scenario in virtual time: packet by packet through embedded switches, or on the fluid
model.
"""
