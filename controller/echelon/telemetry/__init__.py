"""Digests and counters -> tardiness, iteration times, observed distances."""
