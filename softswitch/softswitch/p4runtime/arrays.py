"""Indexed state: indirect counters, indirect meters, registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from finsy.proto import p4r

from softswitch import Switch
from softswitch.p4runtime.metering import meter_config, meter_message, refuse_counters
from softswitch.p4runtime.p4data import DataType, UnsupportedTypeError, compile_type
from softswitch.p4runtime.p4info import ArrayInfo, P4InfoError, P4InfoIndex
from softswitch.rpc.status import Code, RefusedError
from softswitch.stateful import Counter, Meter, Register

__all__ = ["CounterStore", "MeterStore", "RegisterStore", "counts"]


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


_Array = TypeVar("_Array", bound=_Sized)


class _ArrayStore(Generic[_Array]):
    """The part common to all three kinds.

    Arrays go by id and cells by index; an unset id or index selects all.
    """

    noun: str
    """The name of such an array in messages."""
    id_field: str
    """The name of the id in the entity message."""

    def __init__(self, infos: Mapping[int, ArrayInfo], arrays: Mapping[str, _Array]) -> None:
        self._infos = infos
        self._arrays: dict[int, _Array] = {}
        for number, info in infos.items():
            if info.name not in arrays:
                raise P4InfoError(f"{self.noun} {info.name!r} of the P4Info is not in the program")
            self._arrays[number] = arrays[info.name]

    def write(self, kind: int, entity: Any) -> None:
        """Set one cell, or every cell where the index is unset. Only MODIFY exists for cells."""
        number = getattr(entity, self.id_field)
        if kind != p4r.Update.MODIFY:
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"{self._name(number)}: only MODIFY is possible because cells always exist",
            )
        if number == 0:
            raise RefusedError(Code.INVALID_ARGUMENT, f"the {self.noun} id is missing")
        array = self._array(number)
        put = self._setter(number, array, entity)
        for index in self._indices(number, entity, array):
            put(index)

    def read(self, query: Any) -> Iterator[p4r.Entity]:
        """Yield one entity per cell. Id 0 selects all arrays, an unset index all cells."""
        number = getattr(query, self.id_field)
        numbers = [number] if number else list(self._arrays)
        for wanted in numbers:
            array = self._array(wanted)
            for index in self._indices(wanted, query, array):
                yield self._entity(wanted, array, index, query)

    def current(self, entity: Any) -> Iterator[p4r.Entity]:
        """Yield the present values of the cells that a write of `entity` would change."""
        return self.read(entity)

    def _setter(
        self,
        number: int,
        array: _Array,
        entity: Any,
    ) -> Callable[[int], None]:
        raise NotImplementedError

    def _entity(
        self,
        number: int,
        array: _Array,
        index: int,
        query: Any,
    ) -> p4r.Entity:
        raise NotImplementedError

    def _name(self, number: int) -> str:
        info = self._infos.get(number)
        if info:
            return f"{self.noun} {info.name}"
        return f"{self.noun} {number}"

    def _array(self, number: int) -> _Array:
        array = self._arrays.get(number)
        if array is None:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"the program has no {self.noun} with id {number}"
            )
        return array

    def _indices(
        self,
        number: int,
        entity: Any,
        array: _Array,
    ) -> Iterable[int]:
        if not entity.HasField("index"):
            return range(array.size)
        index: int = entity.index.index
        if index < 0:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"{self._name(number)}: index {index} is negative"
            )
        if index >= array.size:
            raise RefusedError(
                Code.OUT_OF_RANGE,
                f"{self._name(number)}: index {index} is not below its size {array.size}",
            )
        return (index,)


class CounterStore(_ArrayStore[Counter]):
    """Indirect counters, which count both packets and bytes whatever their unit says."""

    noun = "counter"
    id_field = "counter_id"

    def __init__(self, info: P4InfoIndex, switch: Switch) -> None:
        super().__init__(info.counters, switch.counters)

    def _setter(
        self,
        number: int,
        array: Counter,
        entity: p4r.CounterEntry,
    ) -> Callable[[int], None]:
        if not entity.HasField("data"):
            return lambda index: None
        packets, octets = counts(entity.data, self._name(number))
        return lambda index: array.write(index, packets, octets)

    def _entity(
        self,
        number: int,
        array: Counter,
        index: int,
        query: p4r.CounterEntry,
    ) -> p4r.Entity:
        packets, octets = array.read(index)
        entry = p4r.CounterEntry(
            counter_id=number,
            index=p4r.Index(index=index),
            data=p4r.CounterData(
                packet_count=packets,
                byte_count=octets,
            ),
        )
        return p4r.Entity(counter_entry=entry)


class MeterStore(_ArrayStore[Meter]):
    """Indirect meters.

    A write without a config resets a cell, which then marks everything green.
    """

    noun = "meter"
    id_field = "meter_id"

    def __init__(self, info: P4InfoIndex, switch: Switch) -> None:
        super().__init__(info.meters, switch.meters)

    def read(self, query: p4r.MeterEntry) -> Iterator[p4r.Entity]:
        """Yield entities as all arrays do. Counters per colour do not exist here."""
        refuse_counters(query)
        return super().read(query)

    def _setter(
        self,
        number: int,
        array: Meter,
        entity: p4r.MeterEntry,
    ) -> Callable[[int], None]:
        refuse_counters(entity)
        config = None
        if entity.HasField("config"):
            kind = self._infos[number].meter_kind
            config = meter_config(entity.config, kind, self._name(number))
        return lambda index: array.configure(index, config)

    def _entity(
        self,
        number: int,
        array: Meter,
        index: int,
        query: p4r.MeterEntry,
    ) -> p4r.Entity:
        entry = p4r.MeterEntry(
            meter_id=number,
            index=p4r.Index(index=index),
        )
        config = array.read(index)
        if config is not None:
            entry.config.CopyFrom(meter_message(config))
        return p4r.Entity(meter_entry=entry)


class RegisterStore(_ArrayStore[Register]):
    """Register arrays of integer cells."""

    noun = "register"
    id_field = "register_id"

    def __init__(self, info: P4InfoIndex, switch: Switch) -> None:
        super().__init__(info.registers, switch.registers)
        self._types: dict[int, DataType] = {}
        for number, array in info.registers.items():
            self._types[number] = _cell_type(array, info)

    def _setter(
        self,
        number: int,
        array: Register,
        entity: p4r.RegisterEntry,
    ) -> Callable[[int], None]:
        if not entity.HasField("data"):
            raise RefusedError(Code.INVALID_ARGUMENT, f"{self._name(number)}: the data is missing")
        try:
            (value,) = self._types[number].decode(entity.data)
        except RefusedError as error:
            raise RefusedError(
                error.status.code, f"{self._name(number)}: {error.status.message}"
            ) from None
        return lambda index: array.write(index, value)

    def _entity(
        self,
        number: int,
        array: Register,
        index: int,
        query: p4r.RegisterEntry,
    ) -> p4r.Entity:
        cell = array.read(index)
        entry = p4r.RegisterEntry(
            register_id=number,
            index=p4r.Index(index=index),
            data=self._types[number].encode((cell,)),
        )
        return p4r.Entity(register_entry=entry)


def counts(data: p4r.CounterData, place: str) -> tuple[int, int]:
    """Return (packets, bytes) of `data`. Refuse negative counts with INVALID_ARGUMENT."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: a count is negative")
    return data.packet_count, data.byte_count


def _cell_type(array: ArrayInfo, info: P4InfoIndex) -> DataType:
    try:
        cell = compile_type(array.type_spec, info.type_info)
    except UnsupportedTypeError as error:
        raise P4InfoError(f"register {array.name}: {error}") from None
    if cell.leaves != 1:
        raise P4InfoError(
            f"register {array.name}: cells of {cell.leaves} values are not supported,"
            " only single integers"
        )
    return cell
