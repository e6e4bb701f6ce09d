"""Execution traces and a summary, made of the records of a training job's ranks (docs/torch.md)."""
