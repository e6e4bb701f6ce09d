"""Measured points: where they are kept, and how many are measured at a time."""
