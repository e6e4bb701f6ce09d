"""Action profiles and selectors: what entries share, and how a hash chooses."""

from __future__ import annotations

from collections import Counter

import pytest

from plugins.tofino_model.tests.emulator.conftest import Words
from softswitch.errors import BadEntry, DuplicateEntry, NoSuchEntry
from tests.faults import naming

STAGES = """\
stage 0 ingress:
  exact_match spread 0:
    p4: { name: Ingress.spread, size: 16, action_profile: Ingress.members }
    p4_param_order:
      b.a: { type: exact, size: 8, full_size: 8 }
    hit: [ send ]
    miss: send
    selector: spread$selector.Ingress.chooser(meter_addr, meter_pfe, $DEFAULT)
    selector_length: spread$selector.Ingress.chooser($DEFAULT, $DEFAULT)
    action: spread$action_data.Ingress.members(action_addr, $DEFAULT)
    instruction: spread(action, $DEFAULT)
    actions:
      Ingress.mark(1, 1):
      - p4_param_order: { tag: 16 }
      - handle: 0x20000001
      - next_table: 0
      - { tag: $adf_h0(0..15) }
      - set h.b, tag
      NoAction(-1, 0):
      - hit_allowed: { allowed: false, reason: user_indicated_default_only }
      - default_only_action: { allowed: true }
      - handle: 0x20000002
      - next_table: 0
      - { }
    default_only_action: NoAction
  selection spread$selector.Ingress.chooser:
    p4: { name: Ingress.chooser, size: 8 }
    input_xbar:
      exact group 0: { 0: w.a }
      hash 1:
        0..13: w.a(0..13)
      hash group 3:
        table: [1]
        seed: 0x0
    mode: fair 0
    non_linear: true
    pool_sizes: [64]
  action spread$action_data.Ingress.members:
    p4: { name: Ingress.members, size: 4 }
    format Ingress.mark: { $adf_h0: 0..15 }
stage 1 ingress:
  ternary_match send 0:
    p4: { name: send, hidden: true }
    hit: [ END ]
    miss: END
    actions:
      run(0, 1):
      - handle: 0x20000003
      - set port, 3
    default_action: run
"""


@pytest.fixture
def spread() -> Words:
    work = Words(STAGES)
    profile = work.program.profiles["Ingress.members"]
    for number in (1, 2, 3):
        profile.set_member(number, "Ingress.mark", {"tag": 100 * number})
    return work


def tag(work: Words, key: int, word: int = 0) -> int:
    return work(word, 0, 0, 7, key, 0)[3]


def test_entries_share_a_member(spread: Words) -> None:
    table, profile = (
        spread.program.tables["Ingress.spread"],
        spread.program.profiles["Ingress.members"],
    )
    table.insert_indirect([5], member=2)
    table.insert_indirect([6], member=2)
    assert [tag(spread, key) for key in (4, 5, 6)] == [7, 200, 200]
    profile.set_member(2, "Ingress.mark", {"tag": 9}, is_new=False)
    assert [tag(spread, key) for key in (5, 6)] == [9, 9]


def test_a_group_spreads_flows_and_passes_over_inactive_members(spread: Words) -> None:
    table, profile = (
        spread.program.tables["Ingress.spread"],
        spread.program.profiles["Ingress.members"],
    )
    assert profile.selector == "Ingress.chooser"
    profile.set_group(1, [(1, True), (2, True), (3, True)])
    table.insert_indirect([8], group=1)
    assert Counter(tag(spread, 8, word) for word in range(300)) == {100: 100, 200: 100, 300: 100}
    assert len({tag(spread, 8, 12345) for _ in range(5)}) == 1
    profile.set_group(1, [(1, True), (2, False), (3, True)])
    assert Counter(tag(spread, 8, word) for word in range(300)) == {100: 150, 300: 150}
    profile.set_group(1, [])
    assert tag(spread, 8) == 7


def test_what_does_not_fit_is_refused(spread: Words) -> None:
    table, profile = (
        spread.program.tables["Ingress.spread"],
        spread.program.profiles["Ingress.members"],
    )
    with pytest.raises(BadEntry, check=naming("Ingress.spread", "members", "groups")):
        table.insert([5], "Ingress.mark", {"tag": 1})
    with pytest.raises(BadEntry, check=naming("Ingress.spread", "member", "group")):
        table.insert_indirect([5])
    with pytest.raises(DuplicateEntry):
        profile.set_member(1, "Ingress.mark", {"tag": 1})
    with pytest.raises(NoSuchEntry):
        profile.set_group(1, [(9, True)])
    profile.set_group(1, [(1, True)])
    with pytest.raises(BadEntry, check=naming("Ingress.members", "group 1", "member 1")):
        profile.delete_member(1)
    profile.delete_group(1)
    profile.delete_member(1)
    with pytest.raises(NoSuchEntry):
        profile.member(1)
