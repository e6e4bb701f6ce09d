"""Telemetry: iteration times, tardiness and distances, from digests and counters of switches.

In come digests and what agents measured. Out come the times of each job's iterations. Begin with
`tracker`.
"""
