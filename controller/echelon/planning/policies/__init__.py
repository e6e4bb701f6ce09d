"""The policies: published ways of sharing the network between training jobs, one a module.

In come jobs and a fabric. Out comes a plan: ranking and path of each flow, and the queues of each
port. Begin with `base`, which says what a policy is; `registry` finds them by entry point.
"""

from echelon.planning.plan import PlanError
from echelon.planning.policies.registry import (
    PolicyChoiceError,
    choices,
    make_policy,
    parse_parameters,
    policy_names,
)

__all__ = [
    "PlanError",
    "PolicyChoiceError",
    "choices",
    "make_policy",
    "parse_parameters",
    "policy_names",
]
