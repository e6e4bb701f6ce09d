"""Sessions with switches: P4Runtime for tables and digests, each target's own channel for queues.

In come intents. Out come writes to switches, and events that say what a switch is and holds. Begin
with `connection`.
"""
