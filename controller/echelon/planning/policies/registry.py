"""The registry of policies: which there are, what parameters each takes, and how to make one.

A policy is a class that has `plan` (see `echelon.planning.policies.base.Policy`), a class attribute
`Parameters`, which is a subclass of `echelon.model.documents.Section` with typed fields and
defaults, and a constructor that takes an instance of it. A distribution registers it in the
entry-point group `echelon.policies`::

    [project.entry-points."echelon.policies"]
    fifo = "echelon.planning.policies.fifo:Fifo"

Listing the names imports no policy. Making one, or asking for its parameters, imports its module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from echelon.model.documents import DocumentError, Section, parse_document, suggestion
from echelon.model.errors import Code
from echelon.model.extras import origin
from echelon.planning.entries import entries_by_name
from echelon.planning.plan import PlanError

if TYPE_CHECKING:
    from echelon.planning.policies.base import Policy

GROUP = "echelon.policies"
"""The entry-point group."""
_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


class PolicyChoiceError(PlanError):
    """The error for a policy that does not exist, or does not take such parameters."""

    def __init__(
        self,
        policy: str,
        reason: str,
        parameter: str | None = None,
        *,
        code: Code | None = None,
    ) -> None:
        message = reason
        if parameter:
            message = f"policy {policy}: {parameter}: {reason}"
        super().__init__(message, code=code)
        self.reason = reason
        self.parameter = parameter
        """The parameter at fault; None if it is the policy itself."""


@cache
def registered() -> Mapping[str, EntryPoint]:
    """Return the entry point of every installed policy, by name, in alphabetical order.

    Raises `PlanError` if two distributions register the same name, or if the installed metadata
    lack the policies of Echelon itself because they are older than this source tree.
    """
    entries = entries_by_name(entry_points(group=GROUP), "policy")
    if not any(map(_is_own, entries.values())):
        raise PlanError(
            "Echelon's own policies are not registered: the installed package is older than its"
            " source tree (run: python -m pip install --editable .)"
        )
    return entries


def _is_own(entry: EntryPoint) -> bool:
    return entry.module.startswith("echelon.")


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies, in alphabetical order. Raises as `registered`."""
    return tuple(registered())


def own_policy_names() -> tuple[str, ...]:
    """Return the names of the policies that come with Echelon, without those of plug-ins.

    Raises as `registered`.
    """
    return tuple(name for name, entry in registered().items() if _is_own(entry))


def parse_parameters(name: str, values: Mapping[str, object]) -> Section:
    """Return `values`, texts or numbers by name, as the policy's own `Parameters`.

    Raises `PolicyChoiceError`, one line that says what is allowed, for an unknown policy, parameter
    or value.
    """
    return _parsed(_load(name), name, values)


def make_policy(name: str, **parameters: object) -> Policy:
    """Make the policy of that name. Raises as `parse_parameters`."""
    policy_class = _load(name)
    policy: Policy = policy_class(_parsed(policy_class, name, parameters))
    return policy


def choices() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return every policy with its parameters, and the values of each, the default first.

    A parameter with a range has its default and then the range, as in ``("4", "1 to 8")``. A policy
    whose module cannot be loaded is left out; `unusable` says why.
    """
    out = {}
    for name in policy_names():
        with suppress(PolicyChoiceError):
            schema = _load(name).Parameters.model_json_schema()
            values = {}
            for key, property_schema in schema.get("properties", {}).items():
                values[key] = tuple(dict.fromkeys(_values(property_schema)))
            out[name] = values
    return out


@dataclass(frozen=True, slots=True)
class About:
    """The description of a policy by itself, in a few words each; empty: it says nothing."""

    name: str
    about: str
    needs: str
    source: str
    parameters: Mapping[str, tuple[str, ...]]
    """The values that each takes, the default first."""


def unusable() -> list[str]:
    """Return why policies cannot be loaded, one line for each that `described` leaves out."""
    reasons = []
    for name in policy_names():
        try:
            _load(name)
        except PolicyChoiceError as error:
            reasons.append(" ".join(error.reason.split()))
    return reasons


def described() -> list[About]:
    """Return the policies that can be loaded, by name; `unusable` says why others cannot."""
    out = []
    for name, parameters in choices().items():
        policy = _load(name)
        about = _about(name, sys.modules[policy.__module__].__doc__ or "")
        needs = getattr(policy, "needs", "")
        source = getattr(policy, "source", "")
        out.append(About(name, about, needs, source, parameters))
    return out


def _about(name: str, docstring: str) -> str:
    """Return the first line of a policy's module, without its name."""
    line = docstring.strip().partition("\n")[0].removesuffix(".")
    line = re.sub(rf"^(the policy of )?{name}: ", "", line, flags=re.IGNORECASE)
    return line[:1].upper() + line[1:]


def _parsed(
    policy: Any,
    name: str,
    values: Mapping[str, object],
) -> Section:
    parameters: type[Section] = policy.Parameters
    for key in values:
        if key not in parameters.model_fields:
            hint = suggestion(key, parameters.model_fields)
            raise PolicyChoiceError(
                name,
                f"is not a parameter of policy '{name}' ({hint})",
                key,
                code="unknown-parameter",
            )
    try:
        return parse_document(parameters, dict(values), "")
    except DocumentError as error:
        raise PolicyChoiceError(name, error.reason, error.path, code=error.code) from None


def _load(name: str) -> Any:
    entries = registered()
    entry = entries.get(name)
    if entry is None:
        reason = f"unknown policy '{name}' ({suggestion(name, entries)})"
        raise PolicyChoiceError(name, reason, code="unknown-policy")
    try:
        policy = entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        reason = (
            f"policy '{name}' of {origin(entry)} cannot be imported: {error} (repair or remove it)"
        )
        raise PolicyChoiceError(name, reason, code="unknown-policy") from error
    parameters = getattr(policy, "Parameters", None)
    has_parameters = isinstance(parameters, type) and issubclass(parameters, Section)
    if not has_parameters or not hasattr(policy, "plan"):
        reason = (
            f"policy '{name}' of {origin(entry)} lacks `plan` or a Section `Parameters`"
            " (repair or remove it)"
        )
        raise PolicyChoiceError(name, reason, code="unknown-policy")
    return policy


def _values(schema: Mapping[str, Any]) -> Iterator[str]:
    if "default" in schema:
        yield _text(schema["default"])
    if schema.get("type") == "boolean":
        yield from ("false", "true")
    yield from map(_text, schema.get("enum", ()))
    if "minimum" in schema and "maximum" in schema:
        yield f"{schema['minimum']} to {schema['maximum']}"
    else:
        for key, words in _LIMITS.items():
            if key in schema:
                yield f"{words} {schema[key]}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
