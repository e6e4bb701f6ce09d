"""`softswitch trace`: what it prints, where entries come from, what it refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from softswitch.cli import main
from tests.faults import mentions

TESTS = Path(__file__).parent.parent
MATCHING = str(TESTS / "programs" / "matching.json")
OWN = TESTS.parent.parent / "p4src" / "build" / "v1model"

EXPECTED = """\
ingress port 3, 12 bytes at 1000 us: 000a0000010000000000beef
  state start
    extract q: table_number 0, x 0xa000001, y 0, z 0, answer 0
  parsed 10 bytes, 2 left
  assign
    standard_metadata.egress_spec: 0 -> 1
  if node_3: true
  table I.exact_one
    hdr.q.x exact = 0xa000001
    hit, entry 0
    action I.counted(value 4369)
      assign
        q.answer: 0 -> 4369
      assign
        standard_metadata.egress_spec: 1 as before
  to port 1, queue 0, 12 bytes
egress port 1, queue 0
  deparsed q
  sent on port 1, 12 bytes: 000a0000010000001111beef
"""


def test_a_packet_after_the_entries_of_a_test(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    entries = tmp_path / "entries.stf"
    entries.write_text(
        "add exact_one x:0x0A000001 counted(value:0x1111)\npacket 0 00\nadd nowhere x:1 nothing()\n"
    )
    packet = "00 0a 00 00 01 00 00 00 00 00 be:ef"
    assert main(["trace", MATCHING, packet, "--port", "3", "--entries", str(entries)]) == 0
    assert capsys.readouterr().out == EXPECTED


def test_the_packets_of_a_test_are_traced(capsys: pytest.CaptureFixture[str]) -> None:
    stf = TESTS / "stf" / "matching.stf"
    assert main(["trace", MATCHING, "--entries", str(stf)]) == 0
    out = capsys.readouterr().out
    assert out.count("ingress port") == sum(
        line.startswith("packet ") for line in stf.read_text().splitlines()
    )
    assert "hdr.q.x lpm = 0xa020000 matches 0xa020000/16" in out or "lpm = " in out


def test_entries_of_a_write_request_and_positions_in_the_source(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The program is our own, whose JSON has source positions; the ids of the request are those of
    its P4Info.
    """
    from finsy.proto import p4i
    from google.protobuf import text_format

    info = p4i.P4Info()
    info_file = OWN / "echelon.p4info.txtpb"
    text_format.Parse(info_file.read_text(), info)
    table = next(t for t in info.tables if t.preamble.name.endswith("ipv4_lpm"))
    action = next(a for a in info.actions if a.preamble.name.endswith("forwarding.route"))
    entries = tmp_path / "write.txtpb"
    params = "".join(f'params {{ param_id: {p.id} value: "\\x{5:02x}" }}\n' for p in action.params)
    entries.write_text(
        f"""updates {{ type: INSERT entity {{ table_entry {{
            table_id: {table.preamble.id}
            match {{ field_id: 1 lpm {{ value: "\\n\\000\\000\\000" prefix_len: 8 }} }}
            action {{ action {{ action_id: {action.preamble.id} {params} }} }}
        }} }} }}"""
    )
    frame = "02000000000202000000000108004500002800000000401166c30a0000010a0000020fa007d100140000"
    program = str(OWN / "echelon.json")
    assert (
        main(["trace", program, frame, "--entries", str(entries), "--p4info", str(info_file)]) == 0
    )
    out = capsys.readouterr().out
    assert "table EchelonIngress.forwarding.ipv4_lpm  include/control/forwarding.p4:" in out
    assert "dst lpm = 0xa000002 matches 0xa000000/8" in out
    assert "action EchelonIngress.forwarding.route(port 5, " in out
    assert (
        "if hdr.shim.isValid() && hdr.shim.version == 2: false  include/control/classifier.p4:"
        in out
    )
    assert "sent on port 5, " in out


REFUSED = [
    ([MATCHING], "packet --entries"),
    ([MATCHING, "00", "--port", "512"], "--port 512 0..511"),
    ([MATCHING, "00", "--time", "-1"], "--time -1"),
    ([MATCHING, "00", "--entries", "{tmp}/x.txtpb"], "{tmp}/x.txtpb --p4info"),
    (
        [MATCHING, "00", "--entries", "{tmp}/x.txtpb", "--p4info", "{tmp}/x.txtpb"],
        "{tmp}/x.txtpb P4Info 1:1",
    ),
    (
        [MATCHING, "00", "--entries", "{tmp}/none.stf"],
        "{tmp}/none.stf " + os.strerror(errno.ENOENT),
    ),
    ([MATCHING, "--entries", "{tmp}/bad.stf"], "{tmp}/bad.stf:1"),
    ([MATCHING, "--entries", "{tmp}/empty.stf"], "{tmp}/empty.stf packet"),
    (["{tmp}/x.txtpb", "00"], "{tmp}/x.txtpb JSON"),
]


@pytest.mark.parametrize(("arguments", "facts"), REFUSED)
def test_what_cannot_be_used_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], facts: str
) -> None:
    (tmp_path / "x.txtpb").write_text("nonsense")
    (tmp_path / "bad.stf").write_text("add nowhere\n")
    (tmp_path / "empty.stf").write_text("# nothing\n")
    assert main(["trace", *(a.format(tmp=tmp_path) for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert mentions(error, *facts.format(tmp=tmp_path).split()), error
    assert error.count("\n") == 1


@pytest.mark.parametrize("packet", ["0", "xyz", "", "0x"])
def test_a_packet_is_hexadecimal(capsys: pytest.CaptureFixture[str], packet: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["trace", MATCHING, packet])
    assert ended.value.code == 2
    assert mentions(capsys.readouterr().err, repr(packet))
