"""Values that controllers see in another form: other widths, and strings."""

from __future__ import annotations

from typing import Any

import pytest
from finsy.proto import p4i, p4r

from softswitch.p4runtime.device import Device
from softswitch.p4runtime.names import Names
from softswitch.p4runtime.p4info import P4InfoError
from softswitch.rpc.status import Code
from tests.conformance.requirement import NEXT_HOPS, Program
from tests.softswitch.p4runtime.conftest import CPU_PORT, Controller

ENTRY = (
    'table_entry { table_id: $next_hop_table match { field_id: 1 exact { value: "\\x05" } } '
    'action { action { action_id: $send params { param_id: 1 value: "%s" } '
    'params { param_id: 2 value: "\\x0a" } params { param_id: 3 value: "\\x0b" } } } }'
)
ADMIT = (
    "table_entry { table_id: $admission_table priority: 1 "
    'match { field_id: 2 optional { value: "%s" } } '
    "action { action { action_id: $admit } } }"
)
MAPPINGS = '@p4runtime_translation_mappings({{"uplink", 3}, {"cpu", 510}})'


def controlled(strings: bool, annotation: str = "") -> Any:
    program = Program(NEXT_HOPS)
    new_type = program.p4info.type_info.new_types["port_id_t"]
    if strings:
        new_type.translated_type.sdn_string.SetInParent()
        for part in program.parts_of_type("port_id_t"):
            part.bitwidth = 0
    if annotation:
        new_type.annotations.append(annotation)
    device = Device(cpu_port=CPU_PORT)
    device.install(program.config())
    return Controller(device, program)


def status(controller: Any, text: str, kind: str = "INSERT") -> Any:
    (answer,) = controller.write(controller.program.update(kind, text))
    return answer


def test_another_width() -> None:
    controller = controlled(strings=False)
    controller.do("INSERT", ENTRY % "\\x00\\x00\\x01\\x02", ADMIT % "\\x07")
    assert controller.read(ENTRY % "\\x01\\x02") == [
        controller.program.entity(ENTRY % "\\x01\\x02")
    ]
    assert controller.read(ADMIT % "\\x07") == [controller.program.entity(ADMIT % "\\x07")]
    assert status(controller, ADMIT % "\\x02\\x00").code in (
        Code.INVALID_ARGUMENT,
        Code.OUT_OF_RANGE,
    )


@pytest.mark.parametrize("text", ["7", "Ethernet1/0", "uplink", ""])
def test_strings_read_back(text: str) -> None:
    controller = controlled(strings=True, annotation=MAPPINGS.replace("uplink", ""))
    controller.do("INSERT", ENTRY % text, ADMIT % text)
    for written in (ENTRY % text, ADMIT % text):
        assert controller.read(written) == [controller.program.entity(written)]
        assert controller.program.entity(written) in controller.read("table_entry { }")
    controller.do("DELETE", ENTRY % text, ADMIT % text)


def test_a_decimal_string_is_its_number_and_another_has_one_of_the_upper_half() -> None:
    names = Names("port_id_t", 9, [MAPPINGS])
    numbers = {
        text: int.from_bytes(names.number(text), "big")
        for text in (b"7", b"a", b"b", b"uplink", b"a")
    }
    assert numbers == {b"7": 7, b"a": 256, b"b": 257, b"uplink": 3}
    assert names.text(b"\x07") == b"7"
    assert names.text(b"\x09") == b"9", "a port that no controller has named"


def test_digits_stand_for_their_number_however_many_they_are() -> None:
    names = Names("wide_t", 64, [])
    assert names.number(names.text(b"\xff" * 8)) == b"\xff" * 8


@pytest.mark.parametrize("digits", ["512", "9" * 5_000])
def test_a_mapping_to_a_number_that_does_not_fit(digits: str) -> None:
    with pytest.raises(Exception, match="gives 'uplink' a number that does not fit 9 bits"):
        controlled(strings=True, annotation=MAPPINGS.replace("3", digits))


def test_a_type_that_is_too_wide_for_strings() -> None:
    with pytest.raises(P4InfoError, match="20000 bits are too many for sdn_string"):
        Names("vast_t", 20_000, [])


def test_a_number_that_belongs_to_another_string() -> None:
    controller = controlled(strings=True, annotation=MAPPINGS)
    answer = status(controller, ADMIT % "3")
    assert answer.code == Code.INVALID_ARGUMENT
    assert "'uplink' has the number 3" in answer.message


def test_there_are_no_more_numbers() -> None:
    controller = controlled(strings=True)
    for number in range(256):
        controller.do("INSERT", ADMIT % f"p{number}")
        controller.do("DELETE", ADMIT % f"p{number}")
    answer = status(controller, ADMIT % "one too many")
    assert answer.code == Code.RESOURCE_EXHAUSTED
    controller.do("INSERT", ADMIT % "p0")


def test_packets() -> None:
    controller = controlled(strings=True, annotation=MAPPINGS)
    sent: list[bytes] = []
    controller.device.on_packet_out = sent.append
    packet = p4r.PacketOut(payload=bytes(60))
    for number, value in enumerate((b"uplink", b"\0", b"\0"), 1):
        packet.metadata.add(metadata_id=number, value=value)
    controller.stream.receive(p4r.StreamMessageRequest(packet=packet))
    assert int.from_bytes(sent[0][:2], "big") >> 7 == 3
    controller.inbox.clear()
    controller.device.packet_in((3 << 7 | 1).to_bytes(2, "big") + bytes(60))
    (message,) = controller.inbox
    values = {part.metadata_id: part.value for part in message.packet.metadata}
    assert values[1] == b"uplink"


def test_batches_and_pipelines_carry_strings_on() -> None:
    controller = controlled(strings=True)
    controller.do("INSERT", ADMIT % "a", ENTRY % "b")
    update = controller.program.update
    batch = [
        update("DELETE", ADMIT % "a"),
        update("MODIFY", ENTRY % "c"),
        update("DELETE", ADMIT % "a"),
    ]
    codes = [
        status.code
        for status in controller.write(*batch, atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
    ]
    assert codes == [Code.ABORTED, Code.ABORTED, Code.NOT_FOUND]
    before = controller.read("table_entry { }")
    controller.set_pipeline("RECONCILE_AND_COMMIT", controller.program.config())
    assert controller.read("table_entry { }") == before
    assert controller.program.entity(ENTRY % "b") in before


def test_a_translated_type_that_the_program_does_not_explain() -> None:
    program = Program(NEXT_HOPS)
    program.p4info.controller_packet_metadata[0].metadata[0].name = "another"
    device = Device(cpu_port=CPU_PORT)
    with pytest.raises(Exception, match="another is of the translated type port_id_t"):
        device.install(program.config())
    assert isinstance(program.p4info, p4i.P4Info)
