"""From digests and counters to tardiness, iteration times and observed distances."""
