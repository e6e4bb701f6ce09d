"""The page of requirements says what both switches do."""

from __future__ import annotations

import pytest

from tests.conformance.page import PAGE, kinds, read, written
from tests.conformance.requirement import REQUIREMENTS, asked
from tests.needs import needs


def test_the_page_has_each_requirement_once() -> None:
    numbers = [requirement.number for requirement in REQUIREMENTS]
    assert len(set(numbers)) == len(numbers)
    assert [len(requirements) for requirements in kinds().values()] == [144, 11, 10, 12]
    assert written(read()) == PAGE.read_text(), "python -m tests.conformance --write"


@pytest.mark.parametrize(
    "name", ["softswitch", pytest.param("bmv2", marks=[pytest.mark.bmv2, needs("bmv2")])]
)
def test_the_page_says_what_the_switch_does(name: str) -> None:
    verdicts = read()
    wrong: list[str] = []
    for requirement, answer in asked(name, REQUIREMENTS):
        if (answer is None) != verdicts[requirement.number, name]:
            wrong.append(f"{requirement.number} {requirement.words} {answer}")
    assert wrong == [], "python -m tests.conformance --write"
