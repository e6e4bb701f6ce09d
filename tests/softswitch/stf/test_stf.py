"""STF tests pass where they should, fail where they should, and are refused with one line where
they are malformed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from softswitch import load_program
from softswitch.cli import main
from softswitch.stf import StfError, parse, run
from tests.needs import needs

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "programs"
COUNTED = "add exact_one x:0 counted(value:1) = e\npacket 0 00 00000000 0000 00 0000\nexpect 1\n"
QUERY = "packet 0 0a 00000000 0000 00 0000\n"


def program(name: str) -> str:
    return str(PROGRAMS / f"{name}.json")


@pytest.mark.parametrize("name", ["matching", "stateful", "replication"])
def test_own_tests_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stf", program(name), str(HERE / f"{name}.stf")]) == 0
    assert capsys.readouterr().out.endswith("expectations met\n")


@pytest.mark.parametrize("name", ["matching", "stateful", "replication"])
def test_each_expectation_counts(name: str) -> None:
    """Damage one expectation at a time: that line fails, whatever else does."""
    path = PROGRAMS / f"{name}.json"
    loaded = load_program(path.read_bytes(), path.name)
    lines = (HERE / f"{name}.stf").read_text().splitlines()
    damaged = 0
    for number, line in enumerate(lines, 1):
        if line.startswith("expect"):
            wrong = f"expect {line.split()[1]} EE"
        elif line.startswith("check_counter"):
            wrong = f"{line.split(')')[0]}) packets == 77"
        else:
            continue
        damaged += 1
        text = "\n".join([*lines[: number - 1], wrong, *lines[number:]])
        failures = run(loaded, parse(text, "t.stf"), "t.stf").failures
        assert [failure.line for failure in failures] == [number]
    assert damaged > 5


@needs("a C compiler")
@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (QUERY + "expect 1 0a 00000000 0000 00 0001", 2, "differ from byte 8 on"),
        (QUERY + "expect 1 0a 00000000 0000 00$", 2, "expected 16 hexadecimal digits, got 20"),
        (
            QUERY + "expect 1 0a 00000000 0000 00 0000 00",
            2,
            "expected at least 22 hexadecimal digits, got 20",
        ),
        (QUERY + "expect 1\nexpect 1", 3, "port 1: expected a packet, none left"),
        (QUERY + "expect 1\nexpect 2", 3, "port 2: expected a packet, none left"),
        (
            QUERY.replace("packet 0", "packet 1"),
            1,
            "port 1: a packet left that nothing expects: 0A0000",
        ),
        (QUERY + QUERY + "expect 1", 2, "port 1: a packet left that nothing expects"),
        (QUERY + "expect 1\nno_packet", 3, "port 1: expected no packet, 0A0000"),
        (
            COUNTED + "check_counter exact_hits(e) packets > 1",
            4,
            "counter exact_hits(e): expected packets > 1, has 1",
        ),
        (
            COUNTED + "check_counter exact_hits(e)",
            4,
            "expected nothing counted, has 1 packets, 10 bytes",
        ),
    ],
)
def test_wrong_expectation_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: int, reason: str
) -> None:
    test = tmp_path / "t.stf"
    test.write_text(text)
    assert main(["stf", program("matching"), str(test)]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    (only,) = captured.out.splitlines()
    assert only.startswith(f"{test}:{line}: ")
    assert reason in only


@needs("a C compiler")
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("send 0 00", "unknown statement 'send'"),
        ("packet", "packet: needs a port number"),
        ("packet x 00", "packet: needs a port number, not 'x'"),
        ("packet 0", "packet: has no bytes"),
        ("packet 0 0*", "'*' is not a hexadecimal digit"),
        ("packet 0 000", "3 hexadecimal digits are not a whole number of bytes"),
        ("packet 512 00", "port 512 is not in 0..511"),
        ("expect 0 00$00", "'$' is neither a hexadecimal digit nor '*'"),
        ("expect 0 $", "'$' needs digits"),
        ("no_packet", "there is no packet before it"),
        ("no_packet 1", "'1' is too much"),
        ("remove first", "single entries cannot be removed"),
        ("add", "expected a table, but the line ends"),
        ("add exact_one", "expected an action, but the line ends"),
        ("add exact_one x:1 counted", "expected '(', but the line ends"),
        ("add exact_one x:1 counted(value:1", "expected ')', but the line ends"),
        ("add exact_one x:1 counted(value)", "expected ':', found ')'"),
        ("add exact_one x:0xg counted(value:1)", "cannot read '0xg counted(value:1)'"),
        ("add exact_one x:1 counted(value:1, value:2)", "parameter 'value' is given twice"),
        ("add exact_one x:1 counted(value:1) extra", "'extra' is too much"),
        ("add nowhere x:1 counted(value:1)", "there is no table 'nowhere'; there are: "),
        ("add exact x:1 counted(value:1)", "there is no table 'exact'"),
        ("add exact_one x:1 answer(value:1)", "table 'I.exact_one': there is no action 'answer'"),
        ("add exact_one x:1 counted()", "parameter 'value' is missing"),
        ("add exact_one x:1 counted(value:1, port:2)", "has no parameter 'port'; it has: value"),
        ("add exact_one x:1 counted(value:0x10000)", "65536 does not fit 16 bits"),
        ("add exact_one w:1 counted(value:1)", "has no field 'w'; its fields: hdr.q.x"),
        ("add exact_one x:1 q.x:2 counted(value:1)", "field 'hdr.q.x' is given twice"),
        ("add exact_two x:1 missed()", "field 'hdr.q.y' is exact and must be given"),
        ("add exact_one x:0x* counted(value:1)", "'*' does not go with a match of kind exact"),
        ("add exact_one x:1/8 counted(value:1)", "'/' does not go with a match of kind exact"),
        ("add prefix x:0x**000000 missed()", "'*' may only stand at the end"),
        ("add prefix x:0x0a000000/33 missed()", "prefix length 33 is not in 0..32"),
        ("add prefix x:0x0a00****/8 missed()", "'*' and '/' do not go together"),
        ("add masked x:1 z:1 missed()", "an entry needs a priority"),
        ("add constant 1 y:1 missed()", "its entries are constant"),
        ("setdefault constant answer(value:1, port:1)", "the default action is constant"),
        ("check_counter none(1)", "there is no counter 'none'"),
        ("check_counter exact_hits(1)", "table 'I.exact_one': there is no entry 1"),
        ("check_counter exact_hits(e)", "there is no entry 'e'"),
        (
            "check_counter exact_hits(e) octets == 1",
            "expected 'packets' or 'bytes', found 'octets'",
        ),
        ("check_counter exact_hits(e) packets = 1", "expected one of == != <= < >= >, found '='"),
        ("register_read none 1", "there is no register 'none'"),
        ("register_read none", "expected a number, but the line ends"),
        ("meter_set_rates none 0 0x1:1 1:1", "expected a decimal rate"),
        ("mirroring_get 3", "there is no mirroring session 3"),
        ("mirroring_add 3", "expected a number, but the line ends"),
        ("mirroring_add 3 4 5", "'5' is too much"),
        ("mc_node_associate 1 0", "there is no node 0"),
        ("counter_read exact_hits e", "counter 'I.exact_hits': there is no entry 'e'"),
        ("counter_write exact_hits 0", "expected a number, but the line ends"),
        ("meter_get_rates none e", "there is no meter 'none'"),
        ("time", "expected a time, but the line ends"),
        ("time 0x10", "expected a decimal time"),
        ("time 0.0001", "not a whole number of nanoseconds"),
        ("expect_digest", "expected a digest, but the line ends"),
        ("expect_digest none", "expected a value, but the line ends"),
        ("expect_digest none 1", "there is no digest 'none'; there are: none"),
        ("check_register none(1) == 1", "there is no register 'none'"),
        ("check_register none(1)", "expected one of == != <= < >= >, found 'end of line'"),
        ("member_add none 1 missed()", "there is no action profile 'none'"),
        ("group_add none 1 2 2", "group 1: member 2 is given twice"),
        ("group_add none 1 2", "there is no action profile 'none'"),
        (
            "add exact_one x:1 member 1",
            "table 'I.exact_one': has no action profile, so an entry needs an action",
        ),
        ("add exact_one x:1 member", "expected '(', but the line ends"),
        ("pvs_add none 1", "there is no value set 'none'"),
        ("pvs_add none", "expected a value, but the line ends"),
        ("pvs_clear none", "there is no value set 'none'"),
    ],
)
def test_bad_line_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], statement: str, reason: str
) -> None:
    test = tmp_path / "t.stf"
    test.write_text(f"# a comment\n\n{statement}  # and another\n")
    assert main(["stf", program("matching"), str(test)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (only,) = captured.err.splitlines()
    assert only.startswith(f"{test}:3: ")
    assert reason in only


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("time 10\npacket 0 00\ntime 9", "t.stf:3: time: 9 is before the last packet, at 10"),
        ("expect_digest event_t 1", "t.stf:1: digest 'event_t': has 3 fields, but 1 are given"),
        ("add group index:1 value:1 to(port:1)", "t.stf:1: table 'I.group': has no field 'value'"),
        ("add group index:1 to(port:1)", "t.stf:1: table 'I.group': has an action profile"),
        ("add group index:1 group 3", "t.stf:1: action profile 'I.spread': there is no group 3"),
        (
            "member_add spread 1 metered()",
            "t.stf:1: action profile 'I.spread': there is no action 'metered'",
        ),
        ("member_add spread 1 to()", "t.stf:1: action 'I.to': parameter 'port' is missing"),
        (
            "member_add shared 1 to(port:1)\ngroup_add shared 1 1",
            "t.stf:2: action profile 'I.shared': has no selector",
        ),
        (
            "meter_set_rates byte_meter e 1:1 1:1",
            "t.stf:1: meter 'I.byte_meter': needs a number, not the entry 'e'",
        ),
        ("meter_set_rates byte_meter 0 2:1 1:1", "t.stf:1: meter: the peak rate 1000000 is below"),
        ("meter_get_rates entry_meter 0", "t.stf:1: table 'I.policed': there is no entry 0"),
        ("check_register memory(10) == 0", "t.stf:1: register 'I.memory': index 10 is not in 0..9"),
        ("check_counter seen(e)", "t.stf:1: counter 'I.seen': needs a number, not the entry 'e'"),
    ],
)
def test_what_does_not_fit_the_program_is_one_line(test: str, reason: str) -> None:
    path = PROGRAMS / ("replication.json" if "event_t" in test else "stateful.json")
    with pytest.raises(StfError) as caught:
        run(load_program(path.read_bytes(), path.name), parse(test, "t.stf"), "t.stf")
    assert str(caught.value).startswith(reason)


DIGEST = "packet 1 06 00 0000 0000 00 00 00000000 00\nexpect 1\n"


@pytest.mark.parametrize(
    ("test", "failures"),
    [
        (DIGEST, []),
        (DIGEST + "expect_digest event_t 6 1 0xfffd", []),
        (DIGEST + "expect_digest event_t 0x*6 0x** 0x***d", []),
        (
            DIGEST + "expect_digest event_t 6 2 0xfffd",
            ["t.stf:3: digest event_t: field 1 is 0x1, which is not what is expected"],
        ),
        (
            DIGEST + "expect_digest event_t 6 1 0xfffd\nexpect_digest event_t 6 1 0xfffd",
            ["t.stf:4: digest event_t: expected a digest, none came"],
        ),
        (
            DIGEST * 2 + "expect_digest event_t 6 1 0xfffd",
            ["t.stf:3: digest event_t: one came that nothing expects: 0x6 0x1 0xfffd"],
        ),
    ],
)
def test_digests_are_compared_where_a_test_expects_any(test: str, failures: list[str]) -> None:
    path = PROGRAMS / "replication.json"
    result = run(load_program(path.read_bytes(), path.name), parse(test, "t.stf"), "t.stf")
    assert [str(failure) for failure in result.failures] == failures


@pytest.mark.parametrize(
    ("test", "packets"),
    [
        (QUERY + "expect 1", []),
        # What left is shown, though the expectation stands further down.
        (QUERY + QUERY + "expect 1\nexpect 1 EE", [2]),
        (QUERY + QUERY + "expect 1", [2]),
        # Nothing left: the packet before the expectation.
        (QUERY + "expect 1\nexpect 2", [1]),
        (QUERY + "expect 1\n" + QUERY + "expect 1\nno_packet", [3]),
        (COUNTED + QUERY + "expect 1\ncheck_counter exact_hits(e)", [4]),
        ("add exact_one x:0 counted(value:1) = e\ncheck_counter exact_hits(e) packets == 1", []),
    ],
)
def test_trace_shows_the_packets_behind_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], test: str, packets: list[int]
) -> None:
    path = tmp_path / "t.stf"
    path.write_text(test)
    plain = main(["stf", program("matching"), str(path)])
    failures = capsys.readouterr().out
    assert main(["stf", program("matching"), str(path), "--trace"]) == plain
    out = capsys.readouterr().out
    assert out.startswith(failures)
    assert [int(line[5:-1]) for line in out.splitlines() if line.startswith("line ")] == packets
    assert out.count("ingress port") == len(packets)


def test_without_expect_only_ports_that_packets_came_in_at_are_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "t.stf"
    test.write_text(
        COUNTED.replace("expect 1\n", "") + "check_counter exact_hits(e) packets == 1\n"
    )
    assert main(["stf", program("matching"), str(test)]) == 0
    assert capsys.readouterr().out == f"{test}: 1 expectations met\n"


def test_a_register_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "t.stf"
    test.write_text(
        "register_write memory 3 0x10\ncheck_register memory(3) == 16\ncheck_register memory(3) <"
        " 0x10\n"
    )
    assert main(["stf", program("stateful"), str(test)]) == 1
    assert capsys.readouterr().out == f"{test}:3: register memory(3): expected < 0x10, has 0x10\n"


def test_ambiguous_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "t.stf"
    test.write_text("register_reset memory\nregister_reset mory\n")
    assert main(["stf", program("stateful"), str(test)]) == 2
    assert (
        f"{test}:2: register 'mory' may be any of I.memory, I.signed_memory"
        in capsys.readouterr().err
    )


def test_aliases_of_the_p4info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "t.stf"
    test.write_text("setdefault short missed()\nsetdefault keyless short_missed()\n")
    p4info = tmp_path / "p4info.txtpb"
    p4info.write_text(
        'tables { preamble { id: 1 name: "I.keyless" alias: "short" } }\n'
        'actions { preamble { id: 2 name: "I.missed" alias: "short_missed" } }\n'
    )
    assert main(["stf", program("matching"), str(test)]) == 2
    assert "there is no table 'short'" in capsys.readouterr().err
    assert main(["stf", program("matching"), str(test), "--p4info", str(p4info)]) == 0


@needs("a C compiler")
@pytest.mark.parametrize("damaged", ["program", "test", "p4info", "p4info text", "encoding"])
def test_files_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: str
) -> None:
    missing, test = tmp_path / "missing", tmp_path / "t.stf"
    test.write_bytes(b"\xff" if damaged == "encoding" else b"wait\n")
    arguments = [program("matching"), str(test)]
    culprit = missing
    if damaged == "program":
        arguments[0] = str(missing)
    elif damaged == "test":
        arguments[1] = str(missing)
    elif damaged == "encoding":
        culprit = test
    else:
        arguments += ["--p4info", str(missing)]
        if damaged == "p4info text":
            missing.write_text("tables {")
    assert main(["stf", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"{culprit}: ")
