"""The gNMI service: queue configuration and queue counters at OpenConfig paths."""
