"""Tardiness, iteration times and observed distances, from digests and counters."""
