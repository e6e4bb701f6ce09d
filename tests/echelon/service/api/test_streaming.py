"""Long answers are the same bytes as short ones, and leave the loop time for others."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.resources.plan import FlowPlanResource, PlanResource, RankingResource
from echelon.controller.resources.switches import EntryResource, IntentResource
from echelon.controller.service.api.routing import PIECE, answer_in_pieces

TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ['"flows":[]', '\\"flows":[]', '"entries":[]']
)


def flow(job: str, name: str) -> FlowPlanResource:
    return FlowPlanResource(
        job=job,
        flow=name,
        path=("h1", "s1"),
        ranking=RankingResource(kind="fixed", parameters={"queue": 3}),
    )


async def collected(resource: PlanResource | IntentResource, field: str) -> tuple[bytes, int]:
    """Return the body, and how often another task had a turn meanwhile."""
    turns = 0
    done = False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    body = b""

    async def send(message: dict[str, object]) -> None:
        nonlocal body
        piece = message.get("body", b"")
        assert isinstance(piece, bytes)
        body += piece

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    response = answer_in_pieces(resource, field)
    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    await response(scope, receive, send)  # type: ignore[arg-type]
    done = True
    await task
    return body, turns


@given(TEXT, TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=4))
def test_the_same_as_in_one_piece(policy: str, problem: str, names: list[tuple[str, str]]) -> None:
    flows = tuple(flow(job, name) for job, name in names)
    plan = PlanResource(number=1, made_at=0.5, policy=policy, jobs=2, flows=flows, problem=problem)
    assert asyncio.run(collected(plan, "flows"))[0].decode() == plan.model_dump_json()


def test_others_have_their_turn() -> None:
    entries = tuple(
        EntryResource(table="t", match={"k": str(number)}, action="a")
        for number in range(10 * PIECE + 1)
    )
    intent = IntentResource(switch="s1", entries=entries, queues=())
    body, turns = asyncio.run(collected(intent, "entries"))
    assert body.decode() == intent.model_dump_json()
    assert turns >= 10
