"""Jobs of Slurm, registered with the service for as long as Slurm gives them hosts.

In come the comment of a job and the nodes that Slurm gave it, from the environment of a hook or
from `squeue`; out go registrations, removals, and the environment of the job's tasks. Begin with
`commands`: its `sync` makes true what the hooks make fast.
"""
