"""The controller as one pure state machine: events in, effects out
(`echelon.controller.machine.machine`).

Nothing here knows a clock, a socket, a task, a thread or a lock. `echelon.controller.service` runs
the machine durably, for real switches; `echelon_lab.virtual` runs the same machine in virtual time,
with a store in memory.
"""
