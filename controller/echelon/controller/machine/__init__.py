"""The controller as one pure state machine, which knows no clock, socket, task, thread or lock.

What comes in are events: what clients ask, what switches report, and what came of earlier effects.
What goes out are effects, in order: answers, documents to save, intents to install, work to do,
alarms to set, and facts for the log and the metrics. Begin with `events` and `effects`, then read
`Machine.handle` in `machine`, whose docstring names the other modules.

`echelon.controller.service` runs the machine durably, for real switches; `echelon_lab.virtual` runs
the same machine in virtual time, with a store in memory.
"""
