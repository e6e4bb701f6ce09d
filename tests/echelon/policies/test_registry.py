"""The registry of policies: names, parameters and their ranges, and refusals with their words."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import Annotated, Literal

import pytest
from pydantic import Field

from echelon.model.documents import Section
from echelon.model.errors import Code
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
from tests.faults import coded

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
    ("name", "given", "parameter", "code", "names"),
    [
        ("echelonn", {}, None, "unknown-policy", ["'echelonn'", "'echelon'"]),
        (
            "zzz",
            {},
            None,
            "unknown-policy",
            ["'zzz'", *policy_names(), "tuned"],
        ),
        ("fair", {"order": "setf"}, "order", "unknown-parameter", ["'fair'"]),
        (
            "echelon",
            {"odrer": "setf"},
            "odrer",
            "unknown-parameter",
            ["'echelon'", "'order'"],
        ),
        (
            "echelon",
            {"order": "edf"},
            "order",
            "not-allowed",
            ["'edf'", "'left'", "'memory'", "'normalised'", "'deadline'", "'setf'"],
        ),
        ("tuned", {"levels": "9"}, "levels", "too-large", ["'9'", "8"]),
        ("tuned", {"levels": 0}, "levels", "too-small", ["0", "1"]),
        ("tuned", {"levels": "many"}, "levels", "not-a-number", ["'many'"]),
    ],
)
def test_what_is_refused_names_policy_parameter_and_what_is_allowed(
    name: str, given: dict[str, object], parameter: str | None, code: Code, names: list[str]
) -> None:
    for refuse in (parse_parameters, lambda name, given: make_policy(name, **given)):
        faulty = coded(code, *names, parameter=parameter)
        with pytest.raises(PolicyChoiceError, check=faulty) as caught:
            refuse(name, given)
        place = f"policy {name}: {parameter}: " if parameter else ""
        assert f"{caught.value}" == f"{place}{caught.value.reason}"


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
    unusable = coded("unknown-policy", "'lost'", value, parameter=None)
    with pytest.raises(PolicyChoiceError, check=unusable) as caught:
        make_policy("lost")
    assert set(choices()) == set(everything) - {"lost"}
    assert registry.unusable() == [caught.value.reason]


@pytest.mark.parametrize(
    ("entries", "code", "names"),
    [
        ([], "plan-impossible", ["pip install --editable"]),
        ([("a", "other.place:A")], "plan-impossible", ["pip install --editable"]),
        (
            [("fifo", "echelon.planning.policies.fifo:Fifo"), ("fifo", "other:Fifo")],
            "duplicate",
            ["policy fifo", "echelon.planning.policies.fifo:Fifo", "other:Fifo"],
        ),
    ],
)
def test_metadata_that_do_not_fit_are_one_clear_line(
    entries: list[tuple[str, str]],
    code: Code,
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [metadata.EntryPoint(name, value, registry.GROUP) for name, value in entries]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    registry.registered.cache_clear()
    try:
        with pytest.raises(PlanError, check=coded(code, *names)):
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
