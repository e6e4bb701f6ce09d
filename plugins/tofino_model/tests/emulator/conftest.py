"""A small program around the instructions under test: eight words come in, the stages work on them,
eight go out.

The packet has W0, W1, H0, H1, B0, B1 and a padding of two bytes. It leaves on port 3 after stage 1.
"""

from __future__ import annotations

import struct

from echelon_tofino_model.emulator import TofinoSwitch, load_assembly

PACKET = struct.Struct("!IIHHBB2x")
"""W0, W1, H0, H1, B0, B1."""

_FRAME = """\
version:
  version: 1.0.1
  target: Tofino
phv ingress:
  w.a: W0
  w.b: W1
  h.a: H0
  h.b: H1
  b.a: B0
  b.b: B1
  pad: H2
  port: H3(0..8)
  valid: B2(0)
phv egress:
  port: H16(0..8)
parser ingress:
  start: begin
  states:
    begin:
      *:
        shift: 16
        next: words
    words:
      *:
        0..3: W0
        4..7: W1
        8..9: H0
        10..11: H1
        12: B0
        13: B1
        14..15: H2
        valid: 1
        shift: 16
        next: end
deparser ingress:
  dictionary:
    W0: valid
    W1: valid
    H0: valid
    H1: valid
    B0: valid
    B1: valid
    H2: valid
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
"""


def framed(stages: str) -> str:
    """Return the text of the whole program."""
    return _FRAME + stages


class Words:
    """A program made of stages under test, and the words that come out of it."""

    def __init__(self, stages: str) -> None:
        self.program = load_assembly(framed(stages), "words.bfa")
        self.switch = TofinoSwitch(self.program)

    def __call__(self, *words: int) -> tuple[int, ...]:
        """Send one packet of W0, W1, H0, H1, B0, B1 and return them as they come out."""
        ((port, packet),) = self.switch.process(1, PACKET.pack(*words), 0)
        assert port == 3
        return PACKET.unpack(packet)


def one_action(instructions: str, before: str = "", memories: str = "") -> str:
    """Return stages whose first runs ``instructions`` (a list in YAML) on every packet."""
    lines = "\n".join(f"      {line.strip()}" for line in instructions.strip().splitlines())
    return f"""\
stage 0 ingress:
  ternary_match work 0:
    p4: {{ name: work, hidden: true }}
    hit: [ send ]
    miss: send
{before}    actions:
      run(0, 1):
      - handle: 0x20000001
      - next_table: 0
      - set port, 3
{lines}
    default_action: run
{memories}stage 1 ingress:
  dependency: match
  ternary_match send 0:
    p4: {{ name: send, hidden: true }}
    hit: [ END ]
    miss: END
    actions:
      nothing(0, 1):
      - handle: 0x20000002
      - 0
    default_action: nothing
"""
