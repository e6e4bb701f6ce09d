"""A store against a dictionary: whatever is called in whatever order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from echelon.controller.service.store import (
    COLLECTIONS,
    Candidate,
    Changes,
    Key,
    Leadership,
    NotLeaderError,
    Store,
    open_store,
)
from tests.needs import needs

Result = TypeVar("Result")

keys: st.SearchStrategy[Key] = st.tuples(
    st.sampled_from(COLLECTIONS), st.sampled_from(["a", "b", "a/b", "é"])
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
large = st.builds(lambda n: {"text": "x" * n}, st.integers(200_000, 400_000))
documents: st.SearchStrategy[Mapping[str, Any]] = (
    st.dictionaries(st.text(), values, max_size=4) | large
)


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    puts = draw(st.dictionaries(keys, documents, max_size=4))
    return Changes(puts, [key for key in draw(st.lists(keys, max_size=4)) if key not in puts])


def apply(model: dict[Key, Mapping[str, Any]], made: Changes) -> None:
    for key in made.deletes:
        model.pop(key, None)
    model.update(made.puts)


class Machine(RuleBasedStateMachine):
    """Two controllers on one store."""

    urls: itertools.count[int]
    base: str

    def __init__(self) -> None:
        super().__init__()
        self.url = f"{self.base}{next(self.urls)}"
        self.loop = asyncio.Runner()
        self.model: dict[Key, Mapping[str, Any]] = {}
        self.terms = [0]
        self.leading: int | None = None
        self.leadership: Leadership | None = None
        self.stores = [self.do(open_store(self.url, lease_s=20)) for _ in range(2)]

    def do(self, call: Awaitable[Result]) -> Result:
        async def body() -> Result:
            async with asyncio.timeout(30):
                return await call

        return self.loop.run(body())

    @property
    def leader(self) -> Store:
        assert self.leading is not None
        return self.stores[self.leading]

    @precondition(lambda self: self.leading is None)
    @rule(who=st.integers(0, 1))
    def campaigns(self, who: int) -> None:
        self.leadership = self.do(self.stores[who].campaign(Candidate(str(who), f"http://{who}")))
        self.terms.append(self.leadership.term)
        self.leading = who

    @precondition(lambda self: self.leading is not None)
    @rule()
    def resigns(self) -> None:
        assert self.leadership is not None
        self.do(self.leadership.resign())
        assert self.leadership.lost.is_set()
        self.leading = self.leadership = None

    @precondition(lambda self: self.leading is not None)
    @rule(by=st.integers(1, 10**12))
    def raises_its_term(self, by: int) -> None:
        assert self.leadership is not None
        self.terms.append(self.do(self.leadership.raise_term(self.leadership.term + by)))

    @precondition(lambda self: self.leading is not None)
    @rule(made=changes())
    def commits(self, made: Changes) -> None:
        self.do(self.leader.commit(made))
        apply(self.model, made)

    @precondition(lambda self: self.leading is not None)
    @rule(made=st.lists(changes(), min_size=2, max_size=6))
    def commits_at_once(self, made: list[Changes]) -> None:
        async def together() -> None:
            await asyncio.gather(*map(self.leader.commit, made))

        self.do(together())
        for each in made:
            apply(self.model, each)

    @rule(made=changes(), who=st.integers(0, 1))
    def is_refused(self, made: Changes, who: int) -> None:
        if who != self.leading:
            with pytest.raises(NotLeaderError) as raised:
                self.do(self.stores[who].commit(made))
            assert raised.value.leader == (
                None if self.leading is None else f"http://{self.leading}"
            )

    @rule(who=st.integers(0, 1))
    def is_opened_again(self, who: int) -> None:
        self.do(self.stores[who].close())
        self.stores[who] = self.do(open_store(self.url, lease_s=20))
        if who == self.leading:
            self.leading = self.leadership = None

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        for store in self.stores:
            snapshot = self.do(store.load())
            found = {
                (name, key): document
                for name in COLLECTIONS
                for key, document in snapshot[name].items()
            }
            assert found == self.model
        leader = self.do(self.stores[0].leader())
        assert (None if leader is None else int(leader.id)) == self.leading
        assert self.terms == sorted(set(self.terms))

    def teardown(self) -> None:
        for store in self.stores:
            self.do(store.close())
        self.loop.close()


def check(url: str, examples: int, steps: int) -> None:
    class OnThisStore(Machine):
        base = url.removesuffix(".db")
        urls = itertools.count()

    run_state_machine_as_test(
        OnThisStore,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_store_is_a_dictionary_that_one_controller_may_change(url: str) -> None:
    check(url, 12, 15)


@pytest.mark.long
@needs("all examples")
def test_a_store_is_a_dictionary_however_long_it_is_used(url: str, tmp_path: Path) -> None:
    check(url, 40, 50)
