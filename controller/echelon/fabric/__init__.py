"""The fabric: its model, its files, and the paths through it."""
