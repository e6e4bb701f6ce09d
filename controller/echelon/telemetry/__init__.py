"""Telemetry: digests and counters become tardiness, iteration times and observed distances."""
