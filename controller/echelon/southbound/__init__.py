"""Sessions with switches: P4Runtime for tables and digests, each target's own channel for queues."""
