"""Echelon: a P4 control plane that schedules the flows of distributed training jobs."""
