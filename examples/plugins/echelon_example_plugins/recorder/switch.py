"""The state of a recorder: its controller, its pipeline and its entries. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from finsy import P4Schema, P4TableEntry
from finsy.proto import U128, p4r, rpc_code

Record = Callable[[dict[str, Any]], None]
"""Takes one change that was carried out, as a JSON object."""


class RefusedError(Exception):
    """A request that P4Runtime says to refuse, with this canonical code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class RecordedSwitch:
    """A switch that holds table entries and digest settings as they were written, and records every
    change.

    It leaves out what a controller of its own does not need: it has one role, tells no controller
    of another one, and does not check entries against the P4 program. A batch is carried out as a
    whole or not at all.
    """

    def __init__(self, device_id: int, record: Record) -> None:
        self._device_id = device_id
        self._record = record
        self._primary = 0
        """The highest election id so far."""
        self._pipeline: p4r.ForwardingPipelineConfig | None = None
        self._schema = P4Schema()
        self._entities: dict[bytes, p4r.Entity] = {}

    def arbitrate(self, claim: p4r.MasterArbitrationUpdate) -> p4r.MasterArbitrationUpdate:
        """Return the answer to a controller's bid. The highest election id wins."""
        self._check_device(claim.device_id)
        bid = U128.decode(claim.election_id)
        self._primary = max(self._primary, bid)
        answer = p4r.MasterArbitrationUpdate(
            device_id=self._device_id, election_id=U128.encode(self._primary)
        )
        answer.status.code = rpc_code.OK if bid == self._primary else rpc_code.ALREADY_EXISTS
        return answer

    def set_pipeline(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Take a P4 program. A program that is committed empties all tables."""
        self._check_primary(request.device_id, request.election_id)
        action = p4r.SetForwardingPipelineConfigRequest.Action.Name(request.action)
        if "COMMIT" in action:
            self._pipeline, self._schema = request.config, P4Schema(request.config.p4info)
            self._entities.clear()
            self._record({"pipeline": f"{request.config.cookie.cookie:#x}"})

    def pipeline(
        self, request: p4r.GetForwardingPipelineConfigRequest
    ) -> p4r.ForwardingPipelineConfig:
        """Return the program, whatever part of it was asked for."""
        self._check_device(request.device_id)
        if self._pipeline is None:
            # finsy knows a switch without a program by these words.
            raise RefusedError(
                rpc_code.FAILED_PRECONDITION, "No forwarding pipeline config set for this device"
            )
        return self._pipeline

    def write(self, request: p4r.WriteRequest) -> None:
        """Carry out all updates of a batch, and record them.

        Raises `RefusedError` for the first that is at fault.
        """
        self._check_primary(request.device_id, request.election_id)
        entities = dict(self._entities)
        for update in request.updates:
            key = _key(update.entity)
            if update.type == p4r.Update.INSERT and key in entities:
                raise RefusedError(rpc_code.ALREADY_EXISTS, f"already there: {update.entity}")
            if update.type != p4r.Update.INSERT and key not in entities:
                raise RefusedError(rpc_code.NOT_FOUND, f"not there: {update.entity}")
            if update.type == p4r.Update.DELETE:
                del entities[key]
            else:
                entities[key] = update.entity
        self._entities = entities
        for update in request.updates:
            self._record(
                {"update": p4r.Update.Type.Name(update.type), **self._in_words(update.entity)}
            )

    def read(self, request: p4r.ReadRequest) -> Iterator[p4r.Entity]:
        """Yield what the request selects: one entry, those of one table, or all."""
        self._check_device(request.device_id)
        for query in request.entities:
            found = self._entities.get(_key(query))
            if found is not None:
                yield found
            else:
                yield from (entity for entity in self._entities.values() if _selects(query, entity))

    def _check_device(self, device_id: int) -> None:
        if device_id != self._device_id:
            raise RefusedError(
                rpc_code.NOT_FOUND, f"this is device {self._device_id}, not {device_id}"
            )

    def _check_primary(self, device_id: int, election_id: p4r.Uint128) -> None:
        self._check_device(device_id)
        if U128.decode(election_id) != self._primary:
            raise RefusedError(
                rpc_code.PERMISSION_DENIED, f"election id {self._primary} is primary"
            )

    def _in_words(self, entity: p4r.Entity) -> dict[str, Any]:
        if entity.HasField("digest_entry"):
            return {"digest": self._schema.digests[entity.digest_entry.digest_id].alias}
        entry = P4TableEntry.decode(entity, self._schema)
        words = {
            "table": entry.table_id,
            "match": entry.match_dict(self._schema),
            "priority": entry.priority,
        }
        # A deletion needs no action.
        return (
            words if entry.action is None else {**words, "action": entry.action_str(self._schema)}
        )


def _key(entity: p4r.Entity) -> bytes:
    """Return what tells an entity from others.

    Raises `RefusedError` for a kind that a recorder does not hold.
    """
    key = p4r.Entity()
    if entity.HasField("digest_entry"):
        key.digest_entry.digest_id = entity.digest_entry.digest_id
    elif entity.HasField("table_entry"):
        entry = entity.table_entry
        key.table_entry.table_id, key.table_entry.priority = entry.table_id, entry.priority
        key.table_entry.match.extend(sorted(entry.match, key=lambda part: part.field_id))
    else:
        raise RefusedError(
            rpc_code.UNIMPLEMENTED, f"a recorder holds no {entity.WhichOneof('entity')}"
        )
    return bytes(key.SerializeToString(deterministic=True))


def _selects(query: p4r.Entity, entity: p4r.Entity) -> bool:
    """Return whether a query with wildcards selects an entity."""
    if query.HasField("digest_entry"):
        return entity.HasField("digest_entry") and not query.digest_entry.digest_id
    asked, held = query.table_entry, entity.table_entry
    return (
        entity.HasField("table_entry") and not asked.match and asked.table_id in (0, held.table_id)
    )
