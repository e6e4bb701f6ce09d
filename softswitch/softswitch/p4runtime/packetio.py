"""Packet-in and packet-out: the @controller_header fields as metadata.

The specification's section is "Packet I/O".

On the CPU port, a packet carries the header in front of its payload, with fields packed in
declaration order. Towards the controller, the fields travel as metadata. A program without the
header exchanges bare payloads.
"""

from __future__ import annotations

from finsy.proto import p4r

from softswitch.p4runtime.bytestring import OutOfRangeError, decode, encode
from softswitch.p4runtime.p4info import MetadataInfo
from softswitch.rpc.status import Code, RefusedError

__all__ = ["ControllerHeader"]


class ControllerHeader:
    """One of the two headers; `fields` is empty if the program has none."""

    def __init__(self, fields: tuple[MetadataInfo, ...]) -> None:
        self._fields = fields
        self._bits = sum(part.width for part in fields)
        self.length_bytes = (self._bits + 7) // 8

    def pack(self, packet: p4r.PacketOut) -> bytes:
        """Return header and payload as the CPU port receives them.

        Raises:
            RefusedError: INVALID_ARGUMENT with the metadata field that is missing, unknown, given
            twice or too wide.
        """
        values: dict[int, bytes] = {}
        ids = {part.id for part in self._fields}
        for metadata in packet.metadata:
            if metadata.metadata_id not in ids:
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"packet-out has no metadata field {metadata.metadata_id}",
                )
            if metadata.metadata_id in values:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, f"metadata field {metadata.metadata_id} is given twice"
                )
            values[metadata.metadata_id] = metadata.value
        header = 0
        for part in self._fields:
            if part.id not in values:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, f"metadata field {part.id} ({part.name!r}) is missing"
                )
            try:
                value = decode(values[part.id], part.width)
            except OutOfRangeError as error:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, f"metadata field {part.id} ({part.name!r}): {error}"
                ) from None
            header = header << part.width | value
        padding = self.length_bytes * 8 - self._bits
        return (header << padding).to_bytes(self.length_bytes, "big") + packet.payload

    def unpack(self, data: bytes) -> p4r.PacketIn | None:
        """Return the message for a packet that left at the CPU port.

        Return None if it is shorter than the header.
        """
        if len(data) < self.length_bytes:
            return None
        padding = self.length_bytes * 8 - self._bits
        header = int.from_bytes(data[: self.length_bytes], "big") >> padding
        message = p4r.PacketIn(payload=data[self.length_bytes :])
        # The header's last field is its lowest bits.
        for part in reversed(self._fields):
            mask = (1 << part.width) - 1
            message.metadata.add(metadata_id=part.id, value=encode(header & mask))
            header >>= part.width
        message.metadata.reverse()
        return message
