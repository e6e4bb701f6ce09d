"""BF Runtime without its transport, message by message.

The rules are those of the open SDE's server (`bf_rt_server_impl.cpp`, `bf_rt_server_mgr.cpp`): a
client subscribes under an id that no other subscribed client has, binds to a program that no other
client is bound to, and then writes and reads. A client that has not subscribed names the program in
each request instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino_model.bfruntime import codec
from echelon_tofino_model.bfruntime.device import BfrtDevice, BfrtProgram, Data, Entries, Key
from echelon_tofino_model.bfruntime.fixed import PORT, fixed_schema
from echelon_tofino_model.bfruntime.schema import BfrtTable, Digest, parse
from softswitch.rpc.status import OK, BatchFailedError, Code, RefusedError, Status

__all__ = ["BfRuntime", "Send"]

_Update = bfrt.Update
_Set = bfrt.SetForwardingPipelineConfigRequest
_READ_ENTRIES = 1000
"""The entries of one ReadResponse."""
_SHARED = "$SHARED"
"""The name to which a client binds for the fixed tables only. Many may."""

Send = Callable[[bfrt.StreamMessageResponse], None]
_Undo = list[Callable[[], None]] | None
"""The steps that take back what a batch has done; None if it asks for no rollback."""


@dataclass(slots=True)
class _Client:
    """A client that has subscribed."""

    id: int
    send: Send
    learns: bool
    hears_ports: bool
    program: str | None = None


class BfRuntime:
    """The BF Runtime service of one device.

    Args:
        device: the switch.
        device_id: the number by which clients name it; a Tofino's is 0.
        lock: held while the device is used.
    """

    def __init__(
        self,
        device: BfrtDevice,
        lock: AbstractContextManager[object],
        device_id: int = 0,
    ) -> None:
        self._device = device
        self._lock = lock
        self._device_id = device_id
        self._clients: dict[int, _Client] = {}
        self._list_id = 0
        self._pending: BfrtProgram | None = None
        """The program of a warm init that has begun and not ended."""
        device.on_digest = self._on_digest

    @property
    def has_learner(self) -> bool:
        """Whether a client gets digests. The caller holds the lock."""
        return any(self._learners())

    # -- the stream --------------------------------------------------------------------------------

    def subscribe(
        self,
        client_id: int,
        request: bfrt.Subscribe,
        send: Send,
    ) -> Callable[[], None]:
        """Add a client, and return what ends its subscription. `send` must not block.

        Raises RefusedError: NOT_FOUND for another device, INVALID_ARGUMENT for an id that a client
        has.
        """
        with self._lock:
            self._check_device(request.device_id)
            if client_id in self._clients:
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"client id {client_id} is taken by a client that is subscribed; use"
                    " another one",
                )
            wanted = request.notifications
            client = _Client(
                client_id,
                send,
                learns=wanted.enable_learn_notifications,
                hears_ports=wanted.enable_port_status_change_notifications,
            )
            self._clients[client_id] = client
            answer = bfrt.StreamMessageResponse()
            answer.subscribe.status.code = Code.OK
            send(answer)

        def end() -> None:
            with self._lock:
                if self._clients.get(client_id) is client:
                    del self._clients[client_id]

        return end

    def port_changed(self, port: int, up: bool) -> None:
        """Tell clients that a port has got or lost its link. The caller holds the lock."""
        table = fixed_schema().tables[PORT]
        message = bfrt.StreamMessageResponse()
        notification = message.port_status_change_notification
        notification.port_up = up
        notification.table_entry.table_id = table.id
        codec.write_key(table, (port,), notification.table_entry.key)
        for client in self._clients.values():
            if client.hears_ports:
                client.send(message)

    def _on_digest(self, name: str, messages: Sequence[Mapping[str, int]]) -> None:
        """Send a list of digests to the client that is bound to the program.

        The caller holds the lock.
        """
        program = self._device.program
        assert program is not None, "a digest comes from a program"
        digest: Digest = program.schema.digests[name]
        # The message has 32 bits for it.
        self._list_id = (self._list_id + 1) & 0xFFFFFFFF
        answer = bfrt.StreamMessageResponse()
        answer.digest.digest_id = digest.id
        answer.digest.list_id = self._list_id
        answer.digest.target.device_id = self._device_id
        for values in messages:
            codec.digest_data(digest, values, answer.digest.data.add())
        for client in self._learners():
            client.send(answer)

    def _learners(self) -> Iterator[_Client]:
        """Yield the clients that are bound to the program and want its digests."""
        program = self._device.program
        if program is not None:
            for client in self._clients.values():
                if client.learns and client.program == program.name:
                    yield client

    # -- programs ----------------------------------------------------------------------------------

    def set_pipeline(self, request: bfrt.SetForwardingPipelineConfigRequest) -> None:
        """Bind a client, or load a program. Raise RefusedError."""
        with self._lock:
            self._check_device(request.device_id)
            client = self._clients.get(request.client_id)
            if client is None:
                raise RefusedError(
                    Code.UNAVAILABLE, f"client {request.client_id} is not known; subscribe first"
                )
            match request.action:
                case _Set.BIND:
                    self._bind(client, request)
                case _Set.VERIFY:
                    _program_of(request)
                case _Set.VERIFY_AND_WARM_INIT_BEGIN:
                    self._begin(_program_of(request))
                case _Set.VERIFY_AND_WARM_INIT_BEGIN_AND_END:
                    self._begin(_program_of(request))
                    self._finish()
                case _Set.WARM_INIT_END:
                    if request.config:
                        raise RefusedError(Code.INVALID_ARGUMENT, "WARM_INIT_END takes no program")
                    self._finish()
                case _:
                    raise RefusedError(
                        Code.UNIMPLEMENTED, "RECONCILE_AND_WARM_INIT_END is not supported"
                    )

    def get_pipeline(
        self, request: bfrt.GetForwardingPipelineConfigRequest
    ) -> bfrt.GetForwardingPipelineConfigResponse:
        """Return the program and the description of the fixed tables. Raise RefusedError."""
        with self._lock:
            self._check_device(request.device_id)
            program = self._device.program
            answer = bfrt.GetForwardingPipelineConfigResponse()
            answer.non_p4_config.bfruntime_info = fixed_schema().text
            if program is not None:
                config = answer.config.add(
                    p4_name=program.name,
                    bfruntime_info=program.schema.text,
                )
                config.profiles.add(
                    profile_name="pipe",
                    context=program.context,
                    binary=program.binary,
                    pipe_scope=range(4),
                )
            return answer

    def _bind(self, client: _Client, request: bfrt.SetForwardingPipelineConfigRequest) -> None:
        if len(request.config) != 1:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"BIND takes one program; {len(request.config)} are given"
            )
        name = request.config[0].p4_name
        if name != _SHARED:
            self._check_program(name)
            for other in self._clients.values():
                if other.program == name:
                    raise RefusedError(
                        Code.ALREADY_EXISTS,
                        f"client {other.id} is bound to program {name} already; client {client.id}"
                        " has to wait for its end",
                    )
        client.program = name

    def _begin(self, program: BfrtProgram) -> None:
        if self._pending is not None:
            raise RefusedError(
                Code.UNAVAILABLE, "a warm init has begun and not ended; end it first"
            )
        self._pending = program
        self._tell(bfrt.WARM_INIT_STARTED)

    def _finish(self) -> None:
        program = self._pending
        self._pending = None
        if program is None:
            raise RefusedError(Code.UNAVAILABLE, "no warm init has begun")
        try:
            self._device.load(program)
        except ValueError as error:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"program {program.name} cannot run: {error}"
            ) from None
        for client in self._clients.values():
            if client.program not in (program.name, _SHARED):
                client.program = None
        self._tell(bfrt.WARM_INIT_FINISHED)

    def _tell(self, kind: bfrt.SetForwardingPipelineConfigResponseType) -> None:
        answer = bfrt.StreamMessageResponse()
        # The first of the two is 0, and has to be there nevertheless.
        answer.set_forwarding_pipeline_config_response.SetInParent()
        answer.set_forwarding_pipeline_config_response.set_forwarding_pipeline_config_response_type = kind
        for client in self._clients.values():
            client.send(answer)

    # -- Write -------------------------------------------------------------------------------------

    def write(
        self,
        request: bfrt.WriteRequest,
        *,
        ignore_not_found: bool = False,
        errors_in_answer: bool = False,
    ) -> bfrt.WriteResponse:
        """Carry out a batch, whose updates are independent unless it asks for a rollback.

        Args:
            ignore_not_found: deleting what is not there is no failure.
            errors_in_answer: report failures in the answer.

        Raises:
            RefusedError: nothing was carried out.
            BatchFailedError: some updates were not; the status of each is in it.
        """
        answer = bfrt.WriteResponse()
        with self._lock:
            self._check_access(request.client_id, request.p4_name)
            if request.atomicity == bfrt.WriteRequest.DATAPLANE_ATOMIC:
                raise RefusedError(
                    Code.UNIMPLEMENTED, "DATAPLANE_ATOMIC is not supported; use ROLLBACK_ON_ERROR"
                )
            undo: _Undo = None
            if request.atomicity == bfrt.WriteRequest.ROLLBACK_ON_ERROR:
                undo = []
            statuses: list[Status] = []
            for update in request.updates:
                try:
                    self._update(update, request.target, undo, answer, ignore_not_found)
                    statuses.append(OK)
                except RefusedError as error:
                    statuses.append(error.status)
                    if undo is not None:
                        for step in reversed(undo):
                            step()
                        break
        failed = [status for status in statuses if status.code]
        if failed and errors_in_answer:
            del answer.status[:]
            for status in statuses:
                answer.status.add(
                    canonical_code=status.code,
                    message=status.message,
                )
        elif failed:
            raise BatchFailedError("Write", statuses)
        return answer

    def _update(
        self,
        update: bfrt.Update,
        target: bfrt.TargetDevice,
        undo: _Undo,
        answer: bfrt.WriteResponse,
        ignore_not_found: bool,
    ) -> None:
        kind = update.entity.WhichOneof("entity")
        match kind:
            case "table_entry":
                self._update_entry(update, target, undo, answer, ignore_not_found)
            case "table_operation":
                operation = update.entity.table_operation
                table = self._table(operation.table_id)
                if operation.table_operations_type not in table.operations:
                    text = f"{table.name}: has no operation {operation.table_operations_type!r}"
                    raise RefusedError(Code.UNIMPLEMENTED, text)
                # What is read is never a cache's, so there is nothing to synchronize.
            case "table_attribute":
                self._set_attribute(update.entity.table_attribute)
            case _:
                raise RefusedError(Code.UNIMPLEMENTED, f"a {kind or 'nothing'} cannot be written")

    def _update_entry(
        self,
        update: bfrt.Update,
        target: bfrt.TargetDevice,
        undo: _Undo,
        answer: bfrt.WriteResponse,
        ignore_not_found: bool,
    ) -> None:
        message = update.entity.table_entry
        table, entries = self._place(message, target)
        if message.is_default_entry:
            self._update_default(update.type, table, entries, message, undo)
            return
        if not message.HasField("key"):
            if update.type == _Update.DELETE and not message.HasField("handle_id"):
                _remember_all(entries, undo)
                entries.clear()
                return
            if table.key:
                raise RefusedError(Code.INVALID_ARGUMENT, f"{table.name}: the entry has no key")
        key = codec.key_of(table, message.key)
        if undo is not None or update.type == _Update.INSERT_OR_MODIFY:
            before = _peek(entries, key)
        else:
            before = None
        match update.type:
            case _Update.INSERT:
                entries.insert(key, codec.data_of(table, message.data, complete=True))
            case _Update.MODIFY:
                entries.modify(key, codec.data_of(table, message.data, complete=False))
            case _Update.INSERT_OR_MODIFY if before is None:
                entries.insert(key, codec.data_of(table, message.data, complete=True))
            case _Update.INSERT_OR_MODIFY:
                entries.modify(key, codec.data_of(table, message.data, complete=False))
                answer.status.add(
                    canonical_code=Code.OK,
                    code=Code.ALREADY_EXISTS,
                    message=f"{table.name}: the entry was there",
                )
            case _Update.DELETE:
                try:
                    entries.delete(key)
                except RefusedError as error:
                    if error.status.code is not Code.NOT_FOUND or not ignore_not_found:
                        raise
                    answer.status.add(
                        canonical_code=Code.OK,
                        code=Code.NOT_FOUND,
                        message=f"{table.name}: the entry was not there",
                    )
            case _:
                if update.type in _Update.Type.values():
                    name = _Update.Type.Name(update.type)
                else:
                    name = update.type
                raise RefusedError(
                    Code.UNIMPLEMENTED, f"{table.name}: updates of type {name} are not supported"
                )
        if undo is not None:
            undo.append(lambda: _restore(entries, key, before))

    def _update_default(
        self,
        kind: int,
        table: BfrtTable,
        entries: Entries,
        message: bfrt.TableEntry,
        undo: _Undo,
    ) -> None:
        before = entries.default()
        if kind in (_Update.DELETE, _Update.RESET):
            entries.set_default(None)
        elif kind in (_Update.INSERT, _Update.MODIFY, _Update.INSERT_OR_MODIFY):
            entries.set_default(codec.data_of(table, message.data, complete=before is None))
        else:
            raise RefusedError(
                Code.UNIMPLEMENTED, f"{table.name}: the default entry is modified or deleted only"
            )
        if undo is not None:
            undo.append(lambda: entries.set_default(before))

    def _set_attribute(self, message: bfrt.TableAttribute) -> None:
        table = self._table(message.table_id)
        kind = message.WhichOneof("attribute")
        if kind == "entry_scope" and "EntryScope" in table.attributes:
            scope = message.entry_scope.pipe_scope
            if scope.WhichOneof("scope") != "user_defined" and scope.predef == bfrt.Mode.ALL:
                return
            text = (
                f"{table.name}: its entries are the same in all pipes; other scopes are not"
                " supported"
            )
            raise RefusedError(Code.UNIMPLEMENTED, text)
        if kind == "port_status_notify" and "port_status_notif_cb" in table.attributes:
            # A client says when it subscribes whether it wants to hear of ports.
            return
        raise RefusedError(
            Code.UNIMPLEMENTED, f"{table.name}: attribute {kind or 'none'} cannot be set"
        )

    # -- Read --------------------------------------------------------------------------------------

    def read(self, request: bfrt.ReadRequest) -> Iterator[bfrt.ReadResponse]:
        """Yield what a request asks for.

        Raise as `write` does; BatchFailedError comes after what could be read.
        """
        with self._lock:
            self._check_access(request.client_id, request.p4_name)
            entities: list[bfrt.Entity] = []
            statuses: list[Status] = []
            for entity in request.entities:
                try:
                    entities += self._read(entity, request.target)
                    statuses.append(OK)
                except RefusedError as error:
                    statuses.append(error.status)
        for start in range(0, len(entities), _READ_ENTRIES):
            yield bfrt.ReadResponse(entities=entities[start : start + _READ_ENTRIES])
        if any(status.code for status in statuses):
            raise BatchFailedError("Read", statuses)

    def _read(self, entity: bfrt.Entity, target: bfrt.TargetDevice) -> list[bfrt.Entity]:
        kind = entity.WhichOneof("entity")
        match kind:
            case "table_entry":
                return self._read_entries(entity.table_entry, target)
            case "table_usage":
                table = self._table(entity.table_usage.table_id)
                answer = bfrt.Entity()
                answer.table_usage.table_id = table.id
                answer.table_usage.usage = self._entries(table, target).usage()
                return [answer]
            case "object_id":
                return [self._object_id(entity.object_id)]
            case _:
                raise RefusedError(Code.UNIMPLEMENTED, f"a {kind or 'nothing'} cannot be read")

    def _read_entries(
        self, message: bfrt.TableEntry, target: bfrt.TargetDevice
    ) -> list[bfrt.Entity]:
        table, entries = self._place(message, target)
        action, wanted = codec.read_data(table, message.data)
        pairs: list[tuple[Key | None, Data]]
        if message.is_default_entry:
            default = entries.default()
            pairs = [] if default is None else [(None, default)]
        elif message.HasField("key"):
            key = codec.key_of(table, message.key)
            data = entries.get(key)
            if action is not None and data.action != action:
                text = f"{table.name}: the entry's action is {data.action}, not {action}"
                raise RefusedError(Code.INVALID_ARGUMENT, text)
            pairs = [(key, data)]
        elif message.HasField("handle_id"):
            raise RefusedError(
                Code.UNIMPLEMENTED, f"{table.name}: entries are read by key, not by handle"
            )
        else:
            pairs = []
            for key, data in entries.all():
                if action is None or data.action == action:
                    pairs.append((key, data))
        return [self._entity(table, message, key, data, wanted) for key, data in pairs]

    def _entity(
        self,
        table: BfrtTable,
        asked: bfrt.TableEntry,
        key: Key | None,
        data: Data,
        wanted: Collection[int],
    ) -> bfrt.Entity:
        answer = bfrt.Entity()
        entry = answer.table_entry
        entry.table_id = table.id
        if key is None:
            entry.is_default_entry = True
        else:
            codec.write_key(table, key, entry.key)
        if asked.HasField("entry_tgt"):
            entry.entry_tgt.CopyFrom(asked.entry_tgt)
        if not asked.table_flags.key_only:
            entry.data.SetInParent()
            codec.write_data(table, data, wanted, entry.data)
        return answer

    def _object_id(self, message: bfrt.ObjectId) -> bfrt.Entity:
        answer = bfrt.Entity()
        object_id = answer.object_id
        object_id.CopyFrom(message)
        program = self._device.program
        if message.WhichOneof("object") == "learn_object":
            digests = {} if program is None else program.schema.digests
            digest = digests.get(message.learn_object.learn_name)
            if digest is None:
                raise RefusedError(
                    Code.NOT_FOUND, f"there is no digest {message.learn_object.learn_name!r}"
                )
            object_id.id = digest.id
            return answer
        asked = message.table_object
        tables = {**fixed_schema().tables, **({} if program is None else program.schema.tables)}
        table = tables.get(asked.table_name)
        if table is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no table {asked.table_name!r}")
        match asked.WhichOneof("names"):
            case "action_name":
                ids = {action.name: action.id for action in table.actions}
                name = asked.action_name.action
            case "key_field_name":
                ids = {field.name: field.id for field in table.key}
                name = asked.key_field_name.field
            case "data_field_name":
                action = asked.data_field_name.action or None
                if action is not None and action not in table.action_by_name:
                    raise RefusedError(
                        Code.NOT_FOUND, f"{table.name}: there is no action {action!r}"
                    )
                ids = {field.name: field.id for field in table.fields(action)}
                name = asked.data_field_name.field
            case _:
                object_id.id = table.id
                return answer
        if name not in ids:
            raise RefusedError(Code.NOT_FOUND, f"{table.name}: there is no {name!r}")
        object_id.id = ids[name]
        return answer

    # -- checks ------------------------------------------------------------------------------------

    def _check_device(self, device_id: int) -> None:
        if device_id != self._device_id:
            raise RefusedError(
                Code.NOT_FOUND, f"there is no device {device_id}; this one is {self._device_id}"
            )

    def _check_program(self, name: str) -> None:
        program = self._device.program
        if program is None or program.name != name:
            running = "none runs" if program is None else f"{program.name} runs"
            raise RefusedError(Code.NOT_FOUND, f"there is no program {name!r}; {running}")

    def _check_access(self, client_id: int, p4_name: str) -> None:
        """Raise RefusedError for a client that may not write and read."""
        if p4_name:
            if p4_name != _SHARED:
                self._check_program(p4_name)
            return
        client = self._clients.get(client_id)
        if client is None:
            raise RefusedError(
                Code.NOT_FOUND,
                f"client {client_id} is not subscribed; subscribe, or name the program in the"
                " request",
            )
        if client.program is None:
            raise RefusedError(
                Code.NOT_FOUND, f"client {client_id} is not bound to a program; bind it first"
            )

    def _place(
        self, message: bfrt.TableEntry, target: bfrt.TargetDevice
    ) -> tuple[BfrtTable, Entries]:
        table = self._table(message.table_id)
        if message.HasField("entry_tgt"):
            target = message.entry_tgt
        return table, self._entries(table, target)

    def _table(self, table_id: int) -> BfrtTable:
        program = self._device.program
        table = None if program is None else program.schema.table_by_id.get(table_id)
        table = table or fixed_schema().table_by_id.get(table_id)
        if table is None:
            raise RefusedError(Code.NOT_FOUND, f"no table has id {table_id}")
        return table

    def _entries(self, table: BfrtTable, target: bfrt.TargetDevice) -> Entries:
        self._check_device(target.device_id)
        pipe = target.pipe_id
        if pipe not in (0, 1, 2, 3, 0xFFFF):
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"pipe {pipe}: give 0 to 3, or 0xffff for all"
            )
        entries = self._device.entries(table.name, None if pipe == 0xFFFF else pipe)
        if entries is None:
            raise RefusedError(
                Code.UNIMPLEMENTED, f"{table.name}: the switch does not have this table"
            )
        return entries


def _program_of(request: bfrt.SetForwardingPipelineConfigRequest) -> BfrtProgram:
    """Return the program that a request brings. Raise RefusedError (INVALID_ARGUMENT)."""
    if len(request.config) != 1:
        raise RefusedError(
            Code.INVALID_ARGUMENT, f"{len(request.config)} programs are given; a switch runs one"
        )
    config = request.config[0]
    if len(config.profiles) > 1:
        raise RefusedError(
            Code.INVALID_ARGUMENT,
            f"program {config.p4_name}: {len(config.profiles)} pipelines are given; give one",
        )
    try:
        schema = parse(config.bfruntime_info, f"program {config.p4_name}: bf-rt.json")
    except ValueError as error:
        raise RefusedError(Code.INVALID_ARGUMENT, str(error)) from None
    profile = config.profiles[0] if config.profiles else config.Profile()
    return BfrtProgram(config.p4_name, schema, profile.context, profile.binary)


def _peek(entries: Entries, key: Key) -> Data | None:
    try:
        return entries.get(key)
    except RefusedError as error:
        if error.status.code is Code.NOT_FOUND:
            return None
        raise


def _restore(
    entries: Entries,
    key: Key,
    before: Data | None,
) -> None:
    """Bring an entry back to what it was."""
    if before is None:
        entries.delete(key)
    elif _peek(entries, key) is None:
        entries.insert(key, before)
    else:
        entries.modify(key, before)


def _remember_all(entries: Entries, undo: _Undo) -> None:
    if undo is not None:
        for key, data in list(entries.all()):
            undo.append(lambda key=key, data=data: _restore(entries, key, data))  # type: ignore[misc]
