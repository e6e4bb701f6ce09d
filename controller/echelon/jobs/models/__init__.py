"""Models by name: what they consist of by their published formulas, and the jobs that train them.

`models` has the models, `training` what GPUs compute and send to train one, and `job_file` writes that as a job file.
"""

from echelon.jobs.models.models import MODELS, find_model

__all__ = ["MODELS", "find_model"]
