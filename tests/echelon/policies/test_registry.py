"""The registry of policies: names, parameters and their ranges, and refusals with their words."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import Annotated, Literal

import pytest
from pydantic import Field

from echelon.model.documents import Section, suggestion
from echelon.planning.plan import PlanError
from echelon.planning.policies import (
    PolicyChoiceError,
    choices,
    make_policy,
    parse_parameters,
    policy_names,
    registry,
)
from echelon.planning.policies.fifo import Fifo
from echelon.planning.policies.orders import ORDERS
from tests.echelon.policies.registering import register

COMBINED = {"paths": ("kept", "crux"), "shifts": ("none", "cassini")}
"""The parts that Echelon takes from other policies."""


class Tuned(Fifo):
    """A policy with a parameter of every kind."""

    name = "tuned"

    class Parameters(Section):
        levels: Annotated[int, Field(ge=1, le=8)] = 4
        share: Annotated[float, Field(gt=0)] = 0.5
        strict: bool = False
        mode: Literal["slow", "fast"] = "fast"

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.parameters = parameters


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "tuned", Tuned)


def test_the_projects_own_policies_are_registered() -> None:
    assert set(policy_names()) >= {"echelon", "fair", "fifo", "varys"}


def test_the_choices_are_those_that_exist() -> None:
    """The choices of a parameter's type are those that the policy looks up; they are written in two
    places.
    """
    known = choices()
    ours = {name: known["echelon"][name] for name in ("order", *COMBINED)}
    assert ours == {"order": ("left", *ORDERS), **COMBINED}
    assert [known[name] for name in ("varys", "fair", "fifo")] == [{}, {}, {}]
    for parameter, values in ours.items():
        for value in values:
            assert make_policy("echelon", **{parameter: value}).name == "echelon"


@pytest.mark.usefixtures("tuned")
def test_choices_come_from_the_types() -> None:
    assert choices()["tuned"] == {
        "levels": ("4", "1 to 8"),
        "share": ("0.5", "more than 0"),
        "strict": ("false", "true"),
        "mode": ("fast", "slow"),
    }


@pytest.mark.usefixtures("tuned")
def test_parameters_are_read_from_text_and_from_numbers() -> None:
    """A file may hold numbers or text; the command line and the API hold text."""
    for given in ({"levels": "8", "share": "0.25"}, {"levels": 8, "share": 0.25}):
        made = make_policy("tuned", **given)
        assert isinstance(made, Tuned)
        assert made.parameters == Tuned.Parameters(levels=8, share=0.25)


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("name", "given", "parameter", "reason"),
    [
        ("echelonn", {}, None, "unknown policy 'echelonn' (did you mean 'echelon'?)"),
        (
            "zzz",
            {},
            None,
            f"unknown policy 'zzz' ({suggestion('zzz', [*policy_names(), 'tuned'])})",
        ),
        ("fair", {"order": "setf"}, "order", "is not a parameter of policy 'fair' (known: none)"),
        (
            "echelon",
            {"odrer": "setf"},
            "odrer",
            "is not a parameter of policy 'echelon' (did you mean 'order'?)",
        ),
        (
            "echelon",
            {"order": "edf"},
            "order",
            "'edf' is not allowed (use 'left', 'memory', 'normalised', 'deadline' or 'setf')",
        ),
        ("tuned", {"levels": "9"}, "levels", "'9' is too large (give 8 or less)"),
        ("tuned", {"levels": 0}, "levels", "0 is too small (give 1 or more)"),
        (
            "tuned",
            {"levels": "many"},
            "levels",
            "'many' is not a whole number (write for example 3)",
        ),
    ],
)
def test_what_is_refused_names_policy_parameter_and_what_is_allowed(
    name: str, given: dict[str, object], parameter: str | None, reason: str
) -> None:
    for refuse in (parse_parameters, lambda name, given: make_policy(name, **given)):
        with pytest.raises(PolicyChoiceError) as caught:
            refuse(name, given)
        assert (caught.value.parameter, caught.value.reason) == (parameter, reason)
        assert str(caught.value) == (
            f"policy {name}: {parameter}: {reason}" if parameter else reason
        )


@pytest.mark.parametrize(
    "value",
    [
        "echelon.planning.policies.lost:Lost",
        "echelon.planning.plan:Lost",
        "echelon.planning.plan:Plan",
    ],
)
def test_a_policy_that_cannot_be_loaded_is_named_and_harms_no_other(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = metadata.EntryPoint("lost", value, registry.GROUP)
    everything = {**registry.registered(), "lost": lost}
    monkeypatch.setattr(registry, "registered", lambda: everything)
    with pytest.raises(
        PolicyChoiceError, match=r"policy 'lost' of .*\(repair or remove it\)"
    ) as caught:
        make_policy("lost")
    assert caught.value.code == "unknown-policy"
    assert set(choices()) == set(everything) - {"lost"}
    assert registry.unusable() == [caught.value.reason]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "pip install --editable"),
        ([("a", "other.place:A")], "pip install --editable"),
        (
            [("fifo", "echelon.planning.policies.fifo:Fifo"), ("fifo", "other:Fifo")],
            "registered by .* and .*; remove one",
        ),
    ],
)
def test_metadata_that_do_not_fit_are_one_clear_line(
    entries: list[tuple[str, str]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [metadata.EntryPoint(name, value, registry.GROUP) for name, value in entries]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    registry.registered.cache_clear()
    try:
        with pytest.raises(PlanError, match=message):
            registry.registered()
    finally:
        registry.registered.cache_clear()


def test_listing_the_names_imports_no_policy() -> None:
    code = (
        "import sys, echelon.planning.policies as p; p.policy_names(); "
        "print([m for m in sys.modules if 'policies.' in m and not m.endswith('registry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
