"""Counters and meters beside tables, tables in several stages, and the order in which tables follow
one another.
"""

from __future__ import annotations

import pytest

from plugins.tofino_model.tests.emulator.conftest import PACKET, Words
from softswitch.stateful import MeterConfig

SEND = """\
stage {stage} ingress:
  ternary_match send 0:
    p4: {{ name: send, hidden: true }}
    hit: [ END ]
    miss: END
    actions:
      run(0, 1):
      - handle: 0x20000090
      - set port, 3
    default_action: run
"""

COUNTED = """\
stage 0 ingress:
  hash_action count 0:
    p4: { name: tbl_count, hidden: true }
    hash_dist:
      2: { hash: 0, mask: 0x7, shift: 3 }
    input_xbar:
      exact group 0: { 0: b.a }
      hash 0:
        32..39: b.a
      hash group 0:
        table: [0]
        seed: 0x0
    gateway:
      name: cond-0
      match: { 0: b.b }
      0x01: send
      miss: run_table
    next: send
    stats: count$stats.Ingress.hashed(hash_dist 2, $DEFAULT)
    instruction: count($DEFAULT, $DEFAULT)
    actions:
      count(0, 1):
      - handle: 0x20000001
      - next_table: 0
      - count$stats.Ingress.hashed($hash_dist)
    default_action: count
  counter count$stats.Ingress.hashed:
    p4: { name: Ingress.hashed, size: 8 }
    count: packets_and_bytes
    format: {packets(0): 64..127, bytes(0): 0..63}
""" + SEND.format(stage=1)


def test_a_hash_action_runs_when_its_gateway_inhibits_it() -> None:
    work = Words(COUNTED)
    for cell, is_counted in ((3, 1), (3, 1), (3, 0), (11, 1), (7, 1)):
        work(0, 0, 0, 0, cell, is_counted)
    array = work.program.counters["Ingress.hashed"].array
    assert array is not None
    octets = PACKET.size + 4
    # Three bits of the hash address the counter, so 11 is the same cell as 3.
    assert [array.read(cell) for cell in (3, 7, 0)] == [(3, 3 * octets), (1, octets), (0, 0)]


METERED = """\
stage 0 ingress:
  exact_match police 0:
    p4: { name: Ingress.police, size: 16 }
    p4_param_order:
      b.a: { type: exact, size: 8, full_size: 8 }
    hit: [ send ]
    miss: send
    meter: police$meter.Ingress.rate(meter_addr, meter_pfe, $DEFAULT)
    meter_color: police$meter.Ingress.rate(meter_addr, meter_pfe)
    instruction: police(action, $DEFAULT)
    action_bus: { 3 : police$meter.Ingress.rate color }
    actions:
      Ingress.colour(1, 1):
      - p4_param_order: { cell: 32 }
      - handle: 0x20000001
      - next_table: 0
      - { cell: meter_addr }
      - set b.b, police$meter.Ingress.rate color(0..7)
      - police$meter.Ingress.rate(2, cell)
      NoAction(0, 0):
      - handle: 0x20000002
      - next_table: 0
      - { }
    default_action: NoAction
  meter police$meter.Ingress.rate:
    p4: { name: Ingress.rate, size: 8 }
    type: standard
    count: packets
""" + SEND.format(stage=1)


def test_a_meter_colours_packets_as_tofino_numbers_the_colours() -> None:
    work = Words(METERED)
    work.program.tables["Ingress.police"].insert([9], "Ingress.colour", {"cell": 5})
    meter = work.program.meters["Ingress.rate"].array
    assert meter is not None
    meter.configure(5, MeterConfig(0, 2, 0, 3))
    colours = [work(0, 0, 0, 0, 9, 0xFF)[5] for _ in range(5)]
    assert colours == [0, 0, 1, 3, 3]
    assert work(0, 0, 0, 0, 8, 0xFF)[5] == 0xFF


SPLIT = """\
stage 0 ingress:
  exact_match wide$st0 0:
    p4: { name: Ingress.wide, size: 400 }
    p4_param_order:
      w.a: { type: exact, size: 32, full_size: 32 }
    hit: [ after ]
    miss: wide$st1
    action_bus: { 32..33 : immediate(0..15) }
    instruction: wide$st0(action, $DEFAULT)
    actions:
      Ingress.mark(1, 1):
      - p4_param_order: { tag: 16 }
      - handle: 0x20000001
      - next_table: 0
      - { tag: immediate(0..15) }
      - set h.a, tag
      Ingress.other(0, 2):
      - handle: 0x20000002
      - next_table: 0
      - set h.a, 6
    default_action: Ingress.other
stage 1 ingress:
  dependency: match
  exact_match wide$st1 0:
    p4: { name: Ingress.wide, size: 400 }
    p4_param_order:
      w.a: { type: exact, size: 32, full_size: 32 }
    hit: [ after ]
    miss: after
    action_bus: { 32..33 : immediate(4..19) }
    instruction: wide$st1(action, $DEFAULT)
    actions:
      Ingress.mark(1, 1):
      - p4_param_order: { tag: 16 }
      - handle: 0x20000001
      - next_table: 0
      - { tag: immediate(4..19) }
      - set h.a, tag
      Ingress.other(0, 2):
      - handle: 0x20000002
      - next_table: 0
      - set h.a, 6
    default_action: Ingress.other
stage 2 ingress:
  dependency: match
  exact_match after 0:
    p4: { name: Ingress.after, size: 8 }
    p4_param_order:
      h.a: { type: exact, size: 16, full_size: 16 }
    hit: [ first, second ]
    miss: send
    instruction: after(action, $DEFAULT)
    actions:
      Ingress.one(0, 1):
      - handle: 0x20000003
      - next_table_miss: send
      - next_table: 0
      - set h.b, 1
      Ingress.two(1, 2):
      - handle: 0x20000004
      - next_table_miss: send
      - next_table: 1
      - set h.b, 2
      NoAction(0, 3):
      - handle: 0x20000005
      - next_table_miss: send
      - next_table: send
      - { }
    default_action: NoAction
stage 3 ingress:
  dependency: match
  ternary_match first 0:
    p4: { name: tbl_first, hidden: true }
    hit: [ send ]
    miss: send
    actions:
      first(0, 1):
      - handle: 0x20000006
      - next_table: 0
      - set b.a, 11
    default_action: first
  ternary_match second 1:
    p4: { name: tbl_second, hidden: true }
    gateway:
      name: cond-1
      match: { 0: h.b(0..7), 8: h.b(8..15), 32: b.b(0..3), 36: b.b(4..7) }
      xor: { 0: h.a(0..7), 8: h.a(8..15) }
      range: 4
      [ 0x00f0, 0xffff, 0x**** ]: run_table
      [ 0xffff, 0xffff, 0x0000 ]: run_table
      miss: send
    hit: [ send ]
    miss: send
    actions:
      second(0, 1):
      - handle: 0x20000007
      - next_table: 0
      - set b.a, 22
    default_action: second
""" + SEND.format(stage=4)


@pytest.fixture
def split() -> Words:
    work = Words(SPLIT)
    wide = work.program.tables["Ingress.wide"]
    for word in range(1, 300):
        wide.insert([word], "Ingress.mark", {"tag": 1000 + word})
    return work


def test_a_table_in_two_stages_runs_its_default_action_once(split: Words) -> None:
    assert split(299, 0, 0, 0, 0, 0)[2] == 1299
    assert split(300, 0, 0, 0, 0, 0)[2] == 6
    split.program.tables["Ingress.wide"].set_default("Ingress.mark", {"tag": 77})
    assert split(300, 0, 0, 0, 0, 0)[2] == 77


def test_the_action_chooses_the_next_table(split: Words) -> None:
    after = split.program.tables["Ingress.after"]
    after.insert([1001], "Ingress.one", {})
    after.insert([1002], "NoAction", {})
    assert split(1, 0, 0, 0, 0, 0)[3:5] == (1, 11)
    assert split(2, 0, 0, 0, 0, 0)[3:5] == (0, 0)
    assert split(3, 0, 0, 0, 0, 0)[3:5] == (0, 0)


def test_a_gateway_compares_fields_and_ranges(split: Words) -> None:
    after = split.program.tables["Ingress.after"]
    after.insert([2], "Ingress.two", {})
    after.insert([3], "Ingress.two", {})
    split.program.tables["Ingress.wide"].insert([1000], "Ingress.mark", {"tag": 2})
    split.program.tables["Ingress.wide"].modify([1], "Ingress.mark", {"tag": 3})
    # Equal fields (2 and 2) run the table; unequal ones (3 and 2) only if the high nibble of B1 is
    # 4 to 7.
    assert split(1000, 0, 0, 0, 0, 0)[4] == 22
    assert [split(1, 0, 0, 0, 0, nibble << 4)[4] for nibble in range(9)] == [
        0,
        0,
        0,
        0,
        22,
        22,
        22,
        22,
        0,
    ]
