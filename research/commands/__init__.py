"""The commands of `python -m research`."""
