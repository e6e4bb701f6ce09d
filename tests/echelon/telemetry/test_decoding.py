"""Flow numbers that come, go and come back."""

from __future__ import annotations

from fractions import Fraction

from echelon.switches.lowering.intent import ActionCall, Intent, KnownFlow, Part, TableEntry
from echelon.switches.telemetry.events import SETTLING_S, Decoder, FlowEvent


def part(job: str, **numbers: int) -> Part:
    entry = TableEntry("flow", (("flow", 1),), (ActionCall("fixed"),))
    return Part(
        job,
        (entry,),
        tuple(KnownFlow(number, job, flow, entry) for flow, number in numbers.items()),
    )


def report(flow: int) -> dict[str, int]:
    return {"event": 1, "flow": flow, "epoch": 3, "slack_key": 1 << 31, "time_us": 2_000_000}


def event(switch: str, job: str, flow: str) -> FlowEvent:
    return FlowEvent(switch, job, flow, 3, Fraction(2), Fraction(0), True, False)


def test_every_switch_has_numbers_of_its_own() -> None:
    decoder = Decoder()
    decoder.hold(Intent("s1", (part("a", f=0), part("b", f=7))), 0.0)
    decoder.hold(Intent("s2", (part("a", f=7),)), 0.0)
    assert decoder.decode("s1", [report(0), report(7)], 0.0).events == (
        event("s1", "a", "f"),
        event("s1", "b", "f"),
    )
    assert decoder.decode("s2", [report(7)], 0.0).events == (event("s2", "a", "f"),)


def test_the_unknown_is_counted() -> None:
    decoder = Decoder()
    assert decoder.decode("s1", [report(0)] * 3, 0.0) == decoder.decode(
        "never heard of", [report(1)] * 3, 0.0
    )
    decoder.hold(Intent("s1", (part("a", f=0),)), 0.0)
    decoded = decoder.decode("s1", [report(0), report(1), report(0)], 0.0)
    assert (len(decoded.events), decoded.unknown) == (2, 1)
    decoder.forget("s1")
    assert decoder.decode("s1", [report(0)], 0.0).unknown == 1


def test_what_has_left_is_still_understood_until_its_number_means_something_else() -> None:
    decoder = Decoder()
    kept = part("b", f=1)
    decoder.hold(Intent("s1", (part("a", f=0), kept)), 0.0)
    decoder.hold(Intent("s1", (kept,)), 0.0)
    assert decoder.decode("s1", [report(0)], 0.0).events == (event("s1", "a", "f"),)
    decoder.hold(Intent("s1", (kept, part("c", g=0))), 0.0)
    # Was it a's last or c's first? The switch may have held the list back.
    decoded = decoder.decode("s1", [report(0), report(1)], 0.0)
    assert (decoded.events, decoded.unknown) == ((event("s1", "b", "f"),), 1)
    assert decoder.decode("s1", [report(0)], SETTLING_S).events == (event("s1", "c", "g"),)


def test_a_part_made_again_with_the_same_numbers_settles_nothing_anew() -> None:
    decoder = Decoder()
    for _ in range(3):
        decoder.hold(Intent("s1", (part("a", f=0),)), 0.0)
        assert decoder.decode("s1", [report(0)], 0.0).events == (event("s1", "a", "f"),)
