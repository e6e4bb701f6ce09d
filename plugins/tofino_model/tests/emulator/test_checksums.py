"""Checksums over a payload that the switch does not parse: residuals in the parser, updates in the
deparser.
"""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from echelon_tofino_model.emulator import TofinoSwitch, load_assembly

TEXT = """\
version:
  target: Tofino
phv ingress:
  src: H0
  dst: H1
  residual: H2
  tag: B0
  later: H3
  port: H4(0..8)
  valid: B1(0)
phv egress:
  port: H16(0..8)
parser ingress:
  start: begin
  states:
    begin:
      *:
        shift: 16
        next: ports
    ports:
      *:
        checksum 1:
          type: RESIDUAL
          mask: [ 0..5 ]
          swap: 0
          start: 1
          end: 1
          dest: H2
          end_pos: 5
        0..1: H0
        2..3: H1
        shift: 6
        next: later
    later:
      *:
        0..1: H3
        valid: 1
        shift: 2
        next: end
deparser ingress:
  dictionary:
    H0: valid
    H1: valid
    full_checksum 0: valid
    H3: valid
  partial_checksum 0:
    - H0: { }
    - H1: { }
    - H2: { }
    - H3: { }
  full_checksum 0:
    - zeros_as_ones: true
    - partial_checksum 0: { }
  egress_unicast_port: port
parser egress:
  start: begin
  states:
    begin:
      *:
        0..1: H16
        shift: 2
        next: end
deparser egress:
  dictionary: {}
  egress_unicast_port: port
stage 0 ingress:
  ternary_match rewrite 0:
    p4: { name: rewrite, hidden: true }
    hit: [ END ]
    miss: END
    actions:
      run(0, 1):
      - handle: 0x20000001
      - set src, 0x1234
      - not later, later
      - set port, 3
    default_action: run
"""
SWITCH = TofinoSwitch(load_assembly(TEXT, "residual.bfa"))


def total(data: bytes) -> int:
    """Return the ones' complement sum of 16-bit words (RFC 1071)."""
    found: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while found >> 16:
        found = (found & 0xFFFF) + (found >> 16)
    return found


WORD = st.integers(0, 0xFFFF)


@given(WORD, WORD, WORD, st.binary(max_size=60).map(lambda data: data + bytes(len(data) % 2)))
def test_a_residual_keeps_the_payload_in_the_checksum(
    src: int, dst: int, later: int, payload: bytes
) -> None:
    before = struct.pack("!HHHH", src, dst, 0, later) + payload
    checksum = ~total(before) & 0xFFFF
    sent = struct.pack("!HHHH", src, dst, checksum, later) + payload
    ((port, data),) = SWITCH.process(0, sent, 0)
    expected = struct.pack("!HHHH", 0x1234, dst, 0, later ^ 0xFFFF) + payload
    assert (port, data[:4], data[6:]) == (3, expected[:4], expected[6:])
    assert total(data) == 0xFFFF
    assert data[4:6] != bytes(2)
