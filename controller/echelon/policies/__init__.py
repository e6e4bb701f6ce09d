"""The policies: each a published way of sharing the network between training jobs, in a module of its name."""

from echelon.plan import PlanError
from echelon.policies.registry import PolicyChoiceError, choices, make_policy, parse_parameters, policy_names

__all__ = ["PlanError", "PolicyChoiceError", "choices", "make_policy", "parse_parameters", "policy_names"]
