"""Sums in virtual time, with the model of a switch, and with the program where it is compiled."""

from __future__ import annotations

from fractions import Fraction

import pytest

from echelon_aggregation.virtual import RATE_BPS, VALUES, Installer, around_ring, in_network
from plugins.aggregation.tests.model_pipelines import install_model

PACKET_BYTES = 62 + 16 + 4 * VALUES
SIZE = 4096


def test_the_rate_of_each_worker_does_not_depend_on_their_number() -> None:
    outcomes = [in_network(install_model, workers, SIZE) for workers in (2, 4, 8)]
    assert all(outcome.exact and outcome.sent_again == 0 for outcome in outcomes)
    rates = [outcome.rate_bps for outcome in outcomes]
    assert max(rates) < Fraction(105, 100) * min(rates)
    # The share of a packet that is values bounds the rate.
    assert Fraction(7, 10) < max(rates) / (RATE_BPS * Fraction(4 * VALUES, PACKET_BYTES)) < 1


def test_a_parameter_server_has_the_link_of_one_host_for_all() -> None:
    for workers in (2, 4, 8):
        outcome = in_network(install_model, workers, SIZE, memory=False)
        assert outcome.exact
        most = RATE_BPS * Fraction(4 * VALUES, PACKET_BYTES) / workers
        assert most / 2 < outcome.rate_bps <= most


def test_a_ring_sends_everything_nearly_twice() -> None:
    for workers in (2, 4, 8):
        outcome = around_ring(install_model, workers, SIZE)
        assert outcome.exact
        most = RATE_BPS * Fraction(4 * VALUES, PACKET_BYTES) * workers / (2 * (workers - 1))
        assert most * Fraction(8, 10) < outcome.rate_bps < most


def test_sums_are_exact_where_links_lose_packets() -> None:
    outcome = in_network(install_model, 4, SIZE, loss=0.01)
    assert outcome.exact
    assert outcome.lost > 0
    assert outcome.sent_again > 0


@pytest.mark.parametrize("memory", [True, False])
def test_runs_are_the_same_each_time(memory: bool) -> None:
    runs = [in_network(install_model, 3, SIZE, loss=0.01, memory=memory) for _ in range(2)]
    assert runs[0] == runs[1]


def test_the_program_does_as_the_model() -> None:
    with Installer() as install:
        for loss in (0.0, 0.01):
            by_program, by_model = (
                in_network(each, 4, SIZE, loss) for each in (install, install_model)
            )
            assert by_program == by_model
        # The program has queues, so that packets of several flows do not leave in the model's
        # order.
        for outcome, other in (
            (
                in_network(install, 4, SIZE, memory=False),
                in_network(install_model, 4, SIZE, memory=False),
            ),
            (around_ring(install, 4, SIZE), around_ring(install_model, 4, SIZE)),
        ):
            assert outcome.exact
            assert abs(outcome.seconds / other.seconds - 1) < Fraction(1, 10)
