"""Echelon on clusters that people have: fixed-function switches, and jobs of Slurm.

`switch_config` writes the queues of switches, `slurm` registers jobs with the service.
"""
