"""A P4Info for BMv2 JSON that has none, as the JSON of P4_14 programs.

It describes tables, actions, action profiles and indirect counters, meters and registers, with ids
counted from 1 in the JSON's order.
"""

from __future__ import annotations

from finsy.proto import p4i

from softswitch import ir

_KINDS = {"exact": 2, "lpm": 3, "ternary": 4, "range": 5}
"""The numbers of p4.config.v1.MatchField.MatchType."""


def describe(program: ir.ProgramIR) -> p4i.P4Info:
    """Return the description of all that a controller can write."""
    info = p4i.P4Info(pkg_info=p4i.PkgInfo(arch="v1model"))
    # The JSON has an action once for each table that uses it, a P4Info once.
    by_name: dict[str, int] = {}
    numbers: dict[int, int] = {}
    for action in program.actions.values():
        is_new = action.name not in by_name
        numbers[action.id] = by_name.setdefault(action.name, 0x01000001 + len(by_name))
        if not is_new:
            continue
        described = info.actions.add()
        described.preamble.CopyFrom(_preamble(numbers[action.id], action.name))
        for n, param in enumerate(action.params, 1):
            described.params.add(id=n, name=param.name, bitwidth=param.width)
    profiles = {name: 0x11000001 + n for n, name in enumerate(program.profiles)}
    tables: list[ir.TableSpec] = []
    for pipeline in (program.ingress, program.egress):
        tables += [node for node in pipeline.nodes.values() if isinstance(node, ir.TableSpec)]
    users: dict[str, list[int]] = {name: [] for name in profiles}
    for n, table in enumerate(tables):
        number = 0x02000001 + n
        entry = info.tables.add(size=table.max_size, is_const_table=table.entries is not None)
        entry.preamble.CopyFrom(_preamble(number, table.name))
        for k, key in enumerate(table.keys, 1):
            match = entry.match_fields.add(id=k, name=key.name, bitwidth=key.width)
            match.match_type = _KINDS[key.match]  # type: ignore[assignment]
        if table.default is not None and (table.default_const or table.default_action_const):
            entry.const_default_action_id = numbers[table.default.action]
        for action in table.actions:
            entry.action_refs.add(id=numbers[action])
        if table.profile is not None:
            entry.implementation_id = profiles[table.profile]
            users[table.profile].append(number)
    for name, profile in program.profiles.items():
        item = info.action_profiles.add(
            size=profile.max_size,
            with_selector=profile.selector is not None,
            table_ids=users[name],
        )
        item.preamble.CopyFrom(_preamble(profiles[name], name))
    for n, counter in enumerate(c for c in program.counters.values() if c.table is None):
        spec = p4i.CounterSpec(unit=3)  # type: ignore[arg-type]
        array = info.counters.add(size=counter.size, spec=spec)
        array.preamble.CopyFrom(_preamble(0x12000001 + n, counter.name))
    for n, register in enumerate(program.registers.values()):
        cells = info.registers.add(size=register.size)
        cells.preamble.CopyFrom(_preamble(0x16000001 + n, register.name))
        cells.type_spec.bitstring.bit.bitwidth = register.width
    return info


def _preamble(number: int, name: str) -> p4i.Preamble:
    return p4i.Preamble(id=number, name=name, alias=name)
