"""Arbitration: the specification's rules one by one, and random histories against a model of the
whole history.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from softswitch.p4runtime.arbitration import Arbitration, Claim, Notice, Termination
from softswitch.rpc.peers import LOCAL, Peer, peer_named
from softswitch.rpc.status import Code
from tests.drawing import examples
from tests.faults import mentions

DEVICE = 7
OPERATOR = peer_named("ipv4:192.0.2.1:1000")
NEIGHBOUR = peer_named("ipv4:192.0.2.2:1000")
STRANGER = peer_named("ipv4:198.51.100.1:1000")


def claim(
    election_id: int | None,
    role: str = "",
    config: object = None,
    device_id: int = DEVICE,
    peer: Peer = LOCAL,
) -> Claim:
    return Claim(device_id, role, election_id, config, peer)


def codes(outcomes: list[Notice | Termination]) -> list[tuple[object, Code]]:
    return [
        (outcome.stream, outcome.code if isinstance(outcome, Notice) else outcome.status.code)
        for outcome in outcomes
    ]


def test_first_claim_makes_a_primary() -> None:
    arbitration = Arbitration(DEVICE)
    assert arbitration.claim("a", claim(5)) == [Notice("a", "", None, 5, Code.OK)]
    assert arbitration.is_primary("", 5)
    assert not arbitration.is_primary("", 4)
    assert not arbitration.is_primary("", None)


def test_higher_id_takes_over_and_the_new_primary_hears_last() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5))
    arbitration.claim("b", claim(3))
    assert codes(arbitration.claim("c", claim(9))) == [
        ("a", Code.ALREADY_EXISTS),
        ("b", Code.ALREADY_EXISTS),
        ("c", Code.OK),
    ]
    assert not arbitration.is_primary("", 5)


def test_lower_id_becomes_backup_and_only_it_hears() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5))
    assert arbitration.claim("b", claim(3)) == [Notice("b", "", None, 5, Code.ALREADY_EXISTS)]


def test_primary_that_leaves_is_not_replaced_by_itself() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5))
    arbitration.claim("b", claim(3))
    assert arbitration.closed("a") == [Notice("b", "", None, 5, Code.NOT_FOUND)]
    assert not arbitration.is_primary("", 3)
    assert not arbitration.is_primary("", 5)
    assert codes(arbitration.claim("b", claim(4))) == [("b", Code.NOT_FOUND)]
    assert codes(arbitration.claim("b", claim(5))) == [("b", Code.OK)]


def test_primary_that_downgrades_itself() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5))
    arbitration.claim("b", claim(3))
    assert codes(arbitration.claim("a", claim(2))) == [("a", Code.NOT_FOUND), ("b", Code.NOT_FOUND)]


def test_backup_that_leaves_is_not_announced() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5))
    arbitration.claim("b", claim(3))
    assert arbitration.closed("b") == []
    assert arbitration.closed("b") == []


def test_unset_election_ids_never_win_and_never_clash() -> None:
    arbitration = Arbitration(DEVICE)
    assert arbitration.claim("a", claim(None)) == [Notice("a", "", None, None, Code.NOT_FOUND)]
    assert arbitration.claim("b", claim(None)) == [Notice("b", "", None, None, Code.NOT_FOUND)]
    assert codes(arbitration.claim("c", claim(0))) == [
        ("a", Code.ALREADY_EXISTS),
        ("b", Code.ALREADY_EXISTS),
        ("c", Code.OK),
    ]


def test_election_id_in_use_ends_the_second_stream_only() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5))
    (outcome,) = arbitration.claim("b", claim(5))
    assert isinstance(outcome, Termination)
    assert outcome.status.code == Code.INVALID_ARGUMENT
    assert mentions(outcome.status.message, "id 5")
    assert arbitration.is_primary("", 5)


def test_same_election_id_for_another_role_is_fine() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5))
    assert codes(arbitration.claim("b", claim(5, "routing"))) == [("b", Code.OK)]
    assert arbitration.primaries == [("", "a"), ("routing", "b")]


def test_wrong_device() -> None:
    arbitration = Arbitration(DEVICE)
    assert codes(arbitration.claim("a", claim(5, device_id=8))) == [("a", Code.NOT_FOUND)]
    arbitration.claim("a", claim(5))
    assert codes(arbitration.claim("a", claim(5, device_id=8))) == [("a", Code.FAILED_PRECONDITION)]
    assert not arbitration.is_primary("", 5), "a terminated stream is no longer live"


def test_role_cannot_change_and_the_others_learn_that_the_primary_is_gone() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5))
    arbitration.claim("b", claim(3))
    assert codes(arbitration.claim("a", claim(5, "routing"))) == [
        ("a", Code.FAILED_PRECONDITION),
        ("b", Code.NOT_FOUND),
    ]
    assert not arbitration.knows("routing")


def test_too_many_streams() -> None:
    arbitration = Arbitration(DEVICE, max_streams_per_role=2)
    arbitration.claim("a", claim(5))
    arbitration.claim("b", claim(2))
    assert codes(arbitration.claim("c", claim(3))) == [("c", Code.RESOURCE_EXHAUSTED)]
    assert codes(arbitration.claim("b", claim(6)))[-1] == ("b", Code.OK)


def test_the_primary_to_be_gets_the_place_of_the_oldest_backup_of_who_has_most() -> None:
    arbitration = Arbitration(DEVICE, max_streams_per_role=4)
    arbitration.claim("operator", claim(9, peer=OPERATOR))
    arbitration.claim("standby", claim(8, peer=OPERATOR))
    for number in (1, 2):
        arbitration.claim(number, claim(number, peer=STRANGER))
    ended, *_, won = arbitration.claim("next", claim(10, peer=NEIGHBOUR))
    assert isinstance(ended, Termination)
    assert (ended.stream, ended.status.code) == (1, Code.RESOURCE_EXHAUSTED)
    assert codes([won]) == [("next", Code.OK)]
    assert mentions(ended.status.message, 4, NEIGHBOUR.address)


def test_a_primary_that_comes_back_gets_in_whoever_holds_the_places() -> None:
    arbitration = Arbitration(DEVICE, max_streams_per_role=4)
    arbitration.claim("operator", claim(9, peer=OPERATOR))
    arbitration.closed("operator")
    for number in range(1, 8):
        arbitration.claim(number, claim(number, peer=STRANGER))
    outcomes = codes(arbitration.claim("again", claim(9, peer=OPERATOR)))
    assert outcomes[0] == (1, Code.RESOURCE_EXHAUSTED)
    assert outcomes[-1] == ("again", Code.OK)


def test_backups_have_fair_shares_of_the_places() -> None:
    arbitration = Arbitration(DEVICE, max_streams_per_role=4)
    for number in (5, 4, 3, 2):
        arbitration.claim(number, claim(number, peer=STRANGER))
    assert codes(arbitration.claim("a", claim(1, peer=OPERATOR)))[0] == (
        4,
        Code.RESOURCE_EXHAUSTED,
    )
    assert codes(arbitration.claim("b", claim(0, peer=OPERATOR))) == [
        ("b", Code.RESOURCE_EXHAUSTED)
    ]
    assert arbitration.is_primary("", 5)


def test_streams_of_other_roles_take_no_place_of_those_that_are_listed() -> None:
    arbitration = Arbitration(DEVICE, listed=["ours"], max_unlisted=3, max_roles=2)
    for number in range(5):
        arbitration.claim(number, claim(1, f"role {number % 2}", peer=STRANGER))
        arbitration.claim(10 + number, claim(2, f"role {number % 2}", peer=STRANGER))
    assert codes(arbitration.claim("x", claim(9, "role 0", peer=STRANGER))) == [
        ("x", Code.RESOURCE_EXHAUSTED)
    ]
    assert codes(arbitration.claim("a", claim(1, "ours", peer=OPERATOR))) == [("a", Code.OK)]
    assert codes(arbitration.claim("b", claim(1, peer=OPERATOR))) == [("b", Code.OK)]


def test_a_role_without_streams_is_forgotten_for_another() -> None:
    arbitration = Arbitration(DEVICE, max_roles=2)
    arbitration.claim("a", claim(1, "first"))
    arbitration.claim("b", claim(1, "second"))
    assert codes(arbitration.claim("c", claim(1, "third"))) == [("c", Code.RESOURCE_EXHAUSTED)]
    arbitration.closed("a")
    assert codes(arbitration.claim("c", claim(1, "third"))) == [("c", Code.OK)]
    assert not arbitration.knows("first")


def test_role_config_is_the_primarys_latest() -> None:
    arbitration = Arbitration(DEVICE)
    arbitration.claim("a", claim(5, "r", "first"))
    assert arbitration.claim("b", claim(3, "r", "ignored")) == [
        Notice("b", "r", "first", 5, Code.ALREADY_EXISTS)
    ]
    assert arbitration.claim("a", claim(5, "r", "second")) == [
        Notice("b", "r", "second", 5, Code.ALREADY_EXISTS),
        Notice("a", "r", "second", 5, Code.OK),
    ]


@dataclass
class RoleModel:
    """The specification's prose, literally: every id ever accepted, and who is live with which."""

    ever: list[int] = field(default_factory=list)
    live: dict[int, int | None] = field(default_factory=dict)

    def primary(self) -> int | None:
        holders = [
            stream
            for stream, election_id in self.live.items()
            if self.ever and election_id == max(self.ever)
        ]
        assert len(holders) <= 1
        return holders[0] if holders else None

    def is_won_by(self, election_id: int | None) -> bool:
        return election_id is not None and election_id >= max(self.ever, default=0)


class ArbitrationHistories(RuleBasedStateMachine):
    """The last notice to each controller must be true, whatever happened before."""

    def __init__(self) -> None:
        super().__init__()
        self.arbitration = Arbitration(DEVICE, max_streams_per_role=3)
        self.roles = {"": RoleModel(), "r": RoleModel()}
        self.told: dict[int, Notice] = {}

    def role_of(self, stream: int) -> str | None:
        return next((name for name, role in self.roles.items() if stream in role.live), None)

    def absorb(self, outcomes: list[Notice | Termination]) -> None:
        for outcome in outcomes:
            assert isinstance(outcome.stream, int)
            if isinstance(outcome, Termination):
                self.told.pop(outcome.stream, None)
            else:
                self.told[outcome.stream] = outcome

    @rule(
        stream=st.integers(0, 5),
        election_id=st.one_of(st.none(), st.integers(0, 4)),
        role=st.sampled_from(["", "r"]),
        device_id=st.sampled_from([DEVICE] * 9 + [1]),
    )
    def claims(self, stream: int, election_id: int | None, role: str, device_id: int) -> None:
        current = self.role_of(stream)
        model = self.roles[role]
        if device_id != DEVICE:
            expected = Code.NOT_FOUND if current is None else Code.FAILED_PRECONDITION
        elif current is not None and current != role:
            expected = Code.FAILED_PRECONDITION
        elif election_id is not None and election_id in [
            i for s, i in model.live.items() if s != stream
        ]:
            expected = Code.INVALID_ARGUMENT
        elif current is None and len(model.live) == 3 and not model.is_won_by(election_id):
            expected = Code.RESOURCE_EXHAUSTED
        else:
            expected = Code.OK
        outcomes = self.arbitration.claim(stream, claim(election_id, role, device_id=device_id))
        refused = [outcome for outcome in outcomes if isinstance(outcome, Termination)]
        if expected:
            assert [(outcome.stream, outcome.status.code) for outcome in refused] == [
                (stream, expected)
            ]
            if current is not None:
                del self.roles[current].live[stream]
        else:
            # Whoever becomes primary gets the place of the oldest of those that are not.
            crowd = [other for other in model.live if other != model.primary()]
            leaving = crowd[:1] if current is None and len(model.live) == 3 else []
            assert [outcome.stream for outcome in refused] == leaving
            for other in leaving:
                del model.live[other]
            assert stream in [outcome.stream for outcome in outcomes]
            model.live[stream] = election_id
            if election_id is not None and election_id >= max(model.ever, default=0):
                model.ever.append(election_id)
                assert outcomes[-1].stream == stream, "the new primary must hear last"
        self.absorb(outcomes)

    @rule(stream=st.integers(0, 5))
    def closes(self, stream: int) -> None:
        current = self.role_of(stream)
        if current is not None:
            del self.roles[current].live[stream]
        self.told.pop(stream, None)
        self.absorb(self.arbitration.closed(stream))

    @invariant()
    def everybody_knows_the_truth(self) -> None:
        for name, role in self.roles.items():
            primary = role.primary()
            for stream in role.live:
                notice = self.told[stream]
                if stream == primary:
                    assert notice.code == Code.OK
                else:
                    assert notice.code == (
                        Code.NOT_FOUND if primary is None else Code.ALREADY_EXISTS
                    )
                assert notice.election_id == (max(role.ever) if role.ever else None)
                assert notice.role == name
            for election_id in (None, *range(5)):
                writes = (
                    primary is not None
                    and election_id is not None
                    and role.live[primary] == election_id
                )
                assert self.arbitration.is_primary(name, election_id) == writes
        expected = {
            (name, role.primary())
            for name, role in self.roles.items()
            if role.primary() is not None
        }
        assert set(self.arbitration.primaries) == expected
        assert len(self.arbitration.primaries) == len(expected)


ArbitrationHistories.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=25, deadline=None
)
TestArbitrationHistories = ArbitrationHistories.TestCase
