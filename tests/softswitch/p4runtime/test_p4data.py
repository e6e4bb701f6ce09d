"""P4Data of every supported type, against messages written out by hand; and that the test program
is p4c's output.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from finsy.proto import p4d, p4t
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from softswitch.p4runtime.p4data import UnsupportedTypeError, compile_type
from softswitch.rpc.status import Code, RefusedError
from tests.needs import needs

HERE = Path(__file__).parent

TYPES = text_format.Parse(
    """
    structs { key: "pair" value {
        members { name: "a" type_spec { bitstring { bit { bitwidth: 12 } } } }
        members { name: "b" type_spec { new_type { name: "port" } } } } }
    new_types { key: "port" value { original_type { bitstring { bit { bitwidth: 9 } } } } }
    new_types { key: "sdn" value { translated_type { uri: "x" sdn_bitwidth: 32 } } }
    new_types { key: "text" value { translated_type { uri: "x" sdn_string { } } } }
    serializable_enums { key: "kind" value { underlying_type { bitwidth: 4 } } }
    """,
    p4t.P4TypeInfo(),
)


def spec(text: str) -> p4t.P4DataTypeSpec:
    return text_format.Parse(text, p4t.P4DataTypeSpec())


def data(text: str) -> p4d.P4Data:
    return text_format.Parse(text, p4d.P4Data())


@pytest.mark.parametrize(
    ("type_text", "values", "data_text"),
    [
        ("bitstring { bit { bitwidth: 12 } }", (0xABC,), 'bitstring: "\\x0a\\xbc"'),
        ("bitstring { int { bitwidth: 12 } }", (0xFFF,), 'bitstring: "\\xff"'),
        ("bitstring { int { bitwidth: 12 } }", (0x7FF,), 'bitstring: "\\x07\\xff"'),
        ("bool { }", (1,), "bool: true"),
        ("bool { }", (0,), "bool: false"),
        (
            'struct { name: "pair" }',
            (1, 2),
            'struct { members { bitstring: "\\x01" } members { bitstring: "\\x02" } }',
        ),
        (
            'tuple { members { struct { name: "pair" } } members { bool { } } }',
            (1, 2, 1),
            """tuple { members { struct { members { bitstring: "\\x01" } members { bitstring: "\\x02" } } }
                members { bool: true } }""",
        ),
        ("tuple { }", (), "tuple { }"),
        ('serializable_enum { name: "kind" }', (9,), 'bitstring: "\\x09"'),
        ('new_type { name: "sdn" }', (2**32 - 1,), 'bitstring: "\\xff\\xff\\xff\\xff"'),
    ],
)
def test_both_ways(type_text: str, values: tuple[int, ...], data_text: str) -> None:
    codec = compile_type(spec(type_text), TYPES)
    assert codec.leaves == len(values)
    assert codec.encode(values) == data(data_text)
    assert codec.decode(data(data_text)) == values


@pytest.mark.parametrize(
    ("type_text", "data_text", "code"),
    [
        ("bool { }", "", Code.INVALID_ARGUMENT),
        ("bool { }", 'bitstring: "\\x01"', Code.INVALID_ARGUMENT),
        ("bitstring { bit { bitwidth: 12 } }", 'bitstring: "\\x10\\x00"', Code.OUT_OF_RANGE),
        ("bitstring { int { bitwidth: 12 } }", 'bitstring: "\\x08\\x00"', Code.OUT_OF_RANGE),
        ("bitstring { int { bitwidth: 12 } }", 'bitstring: ""', Code.OUT_OF_RANGE),
        ('struct { name: "pair" }', "tuple { }", Code.INVALID_ARGUMENT),
        ('struct { name: "pair" }', "struct { members { bool: true } }", Code.INVALID_ARGUMENT),
    ],
)
def test_refused(type_text: str, data_text: str, code: Code) -> None:
    with pytest.raises(RefusedError) as caught:
        compile_type(spec(type_text), TYPES).decode(data(data_text))
    assert caught.value.status.code == code


@pytest.mark.parametrize(
    "type_text",
    [
        "",
        "error { }",
        'header { name: "h" }',
        'struct { name: "nowhere" }',
        'new_type { name: "text" }',
        "bitstring { varbit { max_bitwidth: 8 } }",
        "bitstring { bit { bitwidth: -1 } }",
        "bitstring { int { bitwidth: 0 } }",
        "bitstring { int { bitwidth: 2147483647 } }",
        'tuple { members { enum { name: "e" } } }',
    ],
)
def test_unsupported(type_text: str) -> None:
    with pytest.raises(UnsupportedTypeError):
        compile_type(spec(type_text), TYPES)


@given(st.integers(1, 70), st.data())
def test_signed_values_are_two_s_complement(width: int, draw: st.DataObject) -> None:
    codec = compile_type(spec(f"bitstring {{ int {{ bitwidth: {width} }} }}"), TYPES)
    pattern = draw.draw(st.integers(0, 2**width - 1))
    message = codec.encode((pattern,))
    signed = pattern - 2**width if pattern >> (width - 1) else pattern
    assert int.from_bytes(message.bitstring, "big", signed=True) == signed
    assert codec.decode(message) == (pattern,)


@pytest.mark.p4c
@needs("p4c")
def test_the_program_is_what_p4c_makes_of_its_source(tmp_path: Path) -> None:
    outputs = [
        "-o",
        str(tmp_path / "out.json"),
        "--p4runtime-files",
        str(tmp_path / "out.p4info.txtpb"),
    ]
    subprocess.run(
        ["p4c-bm2-ss", "--std", "p4-16", "--arch", "v1model", *outputs, "everything.p4"],
        check=True,
        cwd=HERE,
        capture_output=True,
    )
    made, kept = (
        json.loads(path.read_text()) for path in (tmp_path / "out.json", HERE / "everything.json")
    )
    made["program"] = kept["program"]  # the name of the output file
    assert made == kept
    assert (tmp_path / "out.p4info.txtpb").read_text() == (
        HERE / "everything.p4info.txtpb"
    ).read_text()
