"""STF tests pass where they should, fail where they should, and are refused with one line where
they are malformed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from softswitch import load_program
from softswitch.cli import main
from softswitch.stf import StfError, parse, run
from tests.faults import mentions
from tests.needs import needs

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "programs"
COUNTED = "add exact_one x:0 counted(value:1) = e\npacket 0 00 00000000 0000 00 0000\nexpect 1\n"
QUERY = "packet 0 0a 00000000 0000 00 0000\n"
ANSWER = "0A00000000000000FFFF"


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
    ("text", "line", "facts"),
    [
        (QUERY + "expect 1 0a 00000000 0000 00 0001", 2, ("port 1", "byte 8", ANSWER)),
        (QUERY + "expect 1 0a 00000000 0000 00$", 2, ("port 1", 16, 20, ANSWER)),
        (QUERY + "expect 1 0a 00000000 0000 00 0000 00", 2, ("port 1", 22, 20, ANSWER)),
        (QUERY + "expect 1\nexpect 1", 3, ("port 1", "none")),
        (QUERY + "expect 1\nexpect 2", 3, ("port 2", "none")),
        (QUERY.replace("packet 0", "packet 1"), 1, ("port 1", "nothing", ANSWER)),
        (QUERY + QUERY + "expect 1", 2, ("port 1", "nothing", ANSWER)),
        (QUERY + "expect 1\nno_packet", 3, ("port 1", "no packet", ANSWER)),
        (
            COUNTED + "check_counter exact_hits(e) packets > 1",
            4,
            ("counter exact_hits(e)", "packets > 1", "has 1"),
        ),
        (
            COUNTED + "check_counter exact_hits(e)",
            4,
            ("counter exact_hits(e)", "nothing", "1 packets", "10 bytes"),
        ),
    ],
)
def test_wrong_expectation_fails(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    line: int,
    facts: tuple[object, ...],
) -> None:
    test = tmp_path / "t.stf"
    test.write_text(text)
    assert main(["stf", program("matching"), str(test)]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    (only,) = captured.out.splitlines()
    assert only.startswith(f"{test}:{line}: ")
    assert mentions(only, *facts), only


@needs("a C compiler")
@pytest.mark.parametrize(
    ("statement", "facts"),
    [
        ("send 0 00", "'send' add packet"),
        ("packet", "packet port"),
        ("packet x 00", "packet port 'x'"),
        ("packet 0", "packet bytes"),
        ("packet 0 0*", "packet '*'"),
        ("packet 0 000", "packet 3 bytes"),
        ("packet 512 00", "packet port 512 0..511"),
        ("expect 0 00$00", "expect '$' '*'"),
        ("expect 0 $", "expect '$' digits"),
        ("no_packet", "no_packet packet"),
        ("no_packet 1", "'1'"),
        ("remove first", "'all' 'first'"),
        ("add", "table line"),
        ("add exact_one", "action line"),
        ("add exact_one x:1 counted", "'(' line"),
        ("add exact_one x:1 counted(value:1", "')' line"),
        ("add exact_one x:1 counted(value)", "':' ')'"),
        ("add exact_one x:0xg counted(value:1)", "'0xg counted(value:1)'"),
        ("add exact_one x:1 counted(value:1, value:2)", "'counted' 'value'"),
        ("add exact_one x:1 counted(value:1) extra", "'extra'"),
        ("add nowhere x:1 counted(value:1)", "table 'nowhere' I.exact_one"),
        ("add exact x:1 counted(value:1)", "table 'exact' I.exact_one"),
        ("add exact_one x:1 answer(value:1)", "'I.exact_one' action 'answer' I.counted"),
        ("add exact_one x:1 counted()", "'I.counted' 'value'"),
        ("add exact_one x:1 counted(value:1, port:2)", "'I.counted' 'port' value"),
        ("add exact_one x:1 counted(value:0x10000)", "'I.exact_one' 'I.counted' 'value' 65536 16"),
        ("add exact_one w:1 counted(value:1)", "'I.exact_one' 'w' hdr.q.x"),
        ("add exact_one x:1 q.x:2 counted(value:1)", "'I.exact_one' 'hdr.q.x'"),
        ("add exact_two x:1 missed()", "'I.exact_two' 'hdr.q.y' exact"),
        ("add exact_one x:0x* counted(value:1)", "'I.exact_one' 'x' '*' exact"),
        ("add exact_one x:1/8 counted(value:1)", "'I.exact_one' 'x' '/' exact"),
        ("add prefix x:0x**000000 missed()", "'I.prefix' 'x' '*' prefix 32"),
        ("add prefix x:0x0a000000/33 missed()", "'I.prefix' 'hdr.q.x' 33 0..32"),
        ("add prefix x:0x0a00****/8 missed()", "'x' '*' '/'"),
        ("add masked x:1 z:1 missed()", "'I.masked' priority"),
        ("add constant 1 y:1 missed()", "'I.constant' entries"),
        ("setdefault constant answer(value:1, port:1)", "'I.constant' default"),
        ("check_counter none(1)", "counter 'none' I.exact_hits"),
        ("check_counter exact_hits(1)", "'I.exact_one' entry 1"),
        ("check_counter exact_hits(e)", "'I.exact_hits' entry 'e'"),
        (
            "check_counter exact_hits(e) octets == 1",
            "'packets' 'bytes' 'octets'",
        ),
        ("check_counter exact_hits(e) packets = 1", "== != <= < >= > '='"),
        ("register_read none 1", "register 'none'"),
        ("register_read none", "number line"),
        ("meter_set_rates none 0 0x1:1 1:1", "decimal rate '0x1'"),
        ("mirroring_get 3", "mirroring session 3"),
        ("mirroring_add 3", "number line"),
        ("mirroring_add 3 4 5", "'5'"),
        ("mc_node_associate 1 0", "node 0"),
        ("counter_read exact_hits e", "'I.exact_hits' entry 'e'"),
        ("counter_write exact_hits 0", "number line"),
        ("meter_get_rates none e", "meter 'none'"),
        ("time", "time line"),
        ("time 0x10", "decimal time '0x10'"),
        ("time 0.0001", "time nanoseconds"),
        ("expect_digest", "digest line"),
        ("expect_digest none", "value line"),
        ("expect_digest none 1", "digest 'none'"),
        ("check_register none(1) == 1", "register 'none'"),
        ("check_register none(1)", "== != <= < >= > 'end of line'"),
        ("member_add none 1 missed()", "profile 'none'"),
        ("group_add none 1 2 2", "group 1 member 2 '2:2'"),
        ("group_add none 1 2", "profile 'none'"),
        (
            "add exact_one x:1 member 1",
            "'I.exact_one' profile action",
        ),
        ("add exact_one x:1 member", "'(' line"),
        ("pvs_add none 1", "value set 'none'"),
        ("pvs_add none", "value line"),
        ("pvs_clear none", "value set 'none'"),
    ],
)
def test_bad_line_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], statement: str, facts: str
) -> None:
    test = tmp_path / "t.stf"
    test.write_text(f"# a comment\n\n{statement}  # and another\n")
    assert main(["stf", program("matching"), str(test)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (only,) = captured.err.splitlines()
    assert only.startswith(f"{test}:3: ")
    assert mentions(only.removeprefix(f"{test}:3: "), *facts.split()), only


@pytest.mark.parametrize(
    ("test", "line", "place", "facts"),
    [
        ("time 10\npacket 0 00\ntime 9", 3, "time", (9, 10)),
        ("expect_digest event_t 1", 1, "digest 'event_t'", (3, 1)),
        (
            "add group index:1 value:1 to(port:1)",
            1,
            "table 'I.group'",
            ("'value'", "hdr.work.index"),
        ),
        ("add group index:1 to(port:1)", 1, "table 'I.group'", ("profile", "member", "group")),
        ("add group index:1 group 3", 1, "action profile 'I.spread'", ("group 3",)),
        ("member_add spread 1 metered()", 1, "action profile 'I.spread'", ("'metered'", "I.to")),
        ("member_add spread 1 to()", 1, "action 'I.to'", ("'port'",)),
        (
            "member_add shared 1 to(port:1)\ngroup_add shared 1 1",
            2,
            "action profile 'I.shared'",
            ("selector",),
        ),
        ("meter_set_rates byte_meter e 1:1 1:1", 1, "meter 'I.byte_meter'", ("number", "'e'")),
        ("meter_set_rates byte_meter 0 2:1 1:1", 1, "meter", (1_000_000, 2_000_000)),
        ("meter_get_rates entry_meter 0", 1, "table 'I.policed'", ("entry 0",)),
        ("check_register memory(10) == 0", 1, "register 'I.memory'", (10, "0..9")),
        ("check_counter seen(e)", 1, "counter 'I.seen'", ("number", "'e'")),
    ],
)
def test_what_does_not_fit_the_program_is_one_line(
    test: str, line: int, place: str, facts: tuple[object, ...]
) -> None:
    path = PROGRAMS / ("replication.json" if "event_t" in test else "stateful.json")
    with pytest.raises(StfError) as caught:
        run(load_program(path.read_bytes(), path.name), parse(test, "t.stf"), "t.stf")
    error = caught.value
    assert (error.file, error.line) == ("t.stf", line)
    assert str(error) == f"t.stf:{line}: {error.reason}"
    named, _, reason = error.reason.partition(": ")
    assert named == place
    assert mentions(reason, *facts), error


DIGEST = "packet 1 06 00 0000 0000 00 00 00000000 00\nexpect 1\n"


@pytest.mark.parametrize(
    ("test", "failures"),
    [
        (DIGEST, []),
        (DIGEST + "expect_digest event_t 6 1 0xfffd", []),
        (DIGEST + "expect_digest event_t 0x*6 0x** 0x***d", []),
        (
            DIGEST + "expect_digest event_t 6 2 0xfffd",
            [(3, "event_t", "field 1", "0x1")],
        ),
        (
            DIGEST + "expect_digest event_t 6 1 0xfffd\nexpect_digest event_t 6 1 0xfffd",
            [(4, "event_t", "none")],
        ),
        (
            DIGEST * 2 + "expect_digest event_t 6 1 0xfffd",
            [(3, "event_t", "nothing", "0x6 0x1 0xfffd")],
        ),
    ],
)
def test_digests_are_compared_where_a_test_expects_any(
    test: str, failures: list[tuple[object, ...]]
) -> None:
    path = PROGRAMS / "replication.json"
    result = run(load_program(path.read_bytes(), path.name), parse(test, "t.stf"), "t.stf")
    assert [failure.line for failure in result.failures] == [line for line, *_ in failures]
    for failure, (_, *facts) in zip(result.failures, failures, strict=True):
        assert mentions(str(failure), *facts), failure


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
    (failure,) = capsys.readouterr().out.splitlines()
    assert mentions(failure, f"{test}:3: register memory(3)", "< 0x10", "has 0x10")


def test_ambiguous_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "t.stf"
    test.write_text("register_reset memory\nregister_reset mory\n")
    assert main(["stf", program("stateful"), str(test)]) == 2
    facts = (f"{test}:2: register 'mory'", "I.memory, I.signed_memory")
    assert mentions(capsys.readouterr().err, *facts)


def test_aliases_of_the_p4info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "t.stf"
    test.write_text("setdefault short missed()\nsetdefault keyless short_missed()\n")
    p4info = tmp_path / "p4info.txtpb"
    p4info.write_text(
        'tables { preamble { id: 1 name: "I.keyless" alias: "short" } }\n'
        'actions { preamble { id: 2 name: "I.missed" alias: "short_missed" } }\n'
    )
    assert main(["stf", program("matching"), str(test)]) == 2
    assert mentions(capsys.readouterr().err, f"{test}:1", "table 'short'")
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
