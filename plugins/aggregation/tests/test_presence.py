"""Causes for which a worker that waits stops waiting."""

from __future__ import annotations

from echelon_aggregation.presence import Presence, Word
from tests.faults import mentions

SILENCE_S = 5.0


def words(*begun: int, beat: int = 0) -> list[Word]:
    return [Word(beat, number) for number in begun]


def test_a_word_is_read_as_it_was_written() -> None:
    for word in (Word(7, 3), Word(0, 12, left=True)):
        assert Word.read(word.text()) == word


def test_a_worker_that_says_nothing_is_gone() -> None:
    presence = Presence(SILENCE_S)
    for second in range(5):
        found = [Word(second, 4), Word(9, 3), Word(second, 3)]
        assert presence.cause(found, 0, float(second), float(second)) is None
    cause = presence.cause([Word(6, 4), Word(9, 3), Word(6, 3)], 0, 6.0, 6.0)
    assert cause is not None
    assert mentions(cause, "worker 1")


def test_when_nobody_else_says_anything_the_network_is_gone() -> None:
    presence = Presence(SILENCE_S)
    for second in range(5):
        assert (
            presence.cause(
                [Word(second, 4), Word(9, 3), Word(8, 3)], 0, float(second), float(second)
            )
            is None
        )
    cause = presence.cause([Word(5, 4), Word(9, 3), Word(8, 3)], 0, 5.0, 5.0)
    assert cause is not None
    assert mentions(cause, "network")
    assert not mentions(cause, "worker 1")


def test_a_worker_that_computes_for_long_is_waited_for() -> None:
    presence = Presence(SILENCE_S)
    for second in range(100):
        assert presence.cause(words(4, 3, beat=second), 0, float(second), float(second)) is None


def test_a_network_that_answers_nobody_is_gone() -> None:
    presence = Presence(SILENCE_S)
    found = [
        presence.cause(words(4, 4, beat=at), 0, float(at), float(at)) is not None for at in range(8)
    ]
    assert found == [False] * 5 + [True] * 3


def test_a_result_may_take_its_time_once_the_last_worker_has_begun() -> None:
    presence = Presence(SILENCE_S)
    for second in range(60):
        assert presence.cause(words(4, 3, beat=second), 0, float(second), float(second)) is None
    found = [
        presence.cause(words(4, 4, beat=at), 0, float(at), float(at)) is not None
        for at in range(60, 67)
    ]
    assert found == [False] * 5 + [True] * 2


def test_a_worker_that_left_is_not_waited_for() -> None:
    presence = Presence(SILENCE_S)
    assert presence.cause([Word(1, 4), Word(1, 4, left=True)], 0, 1.0, 1.0) is None, (
        "it may still answer requests"
    )
    cause = presence.cause([Word(1, 5), Word(1, 4, left=True)], 0, 1.0, 1.0)
    assert cause is not None
    assert mentions(cause, "worker 1", "left")


def test_silence_counts_from_when_one_began_to_listen() -> None:
    presence = Presence(SILENCE_S)
    assert presence.cause(words(1, 0), 0, 0.0, 0.0) is None
    presence.stop()
    assert presence.cause(words(2, 0), 0, 0.0, 100.0) is None
