"""P4Info, values and table entries (sections 6, 8 and 9.1)."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4r

from tests.conformance.requirement import (
    DENIED,
    EXHAUSTED,
    EXISTS,
    INVALID,
    NOT_FOUND,
    OK,
    OUT_OF_RANGE,
    PRECONDITION,
    Trial,
    requires,
)
from tests.conformance.session import code_of

VALUES = "8"
TABLES = "9.1"
UNKNOWN_ID = 0x02FFFFF0


def exact(dst: str = "\\x0a", port: str = "\\x01", action: str | None = None) -> str:
    """Return an entry of exact_table."""
    if action is None:
        action = forward()
    return (
        "table_entry { table_id: $exact_table "
        f'match {{ field_id: 1 exact {{ value: "{dst}" }} }} '
        f'match {{ field_id: 2 exact {{ value: "{port}" }} }} {action} }}'
    )


def forward(port: str = "\\x02", mark: str = "\\x00") -> str:
    return (
        f'action {{ action {{ action_id: $forward params {{ param_id: 1 value: "{port}" }} '
        f'params {{ param_id: 2 value: "{mark}" }} }} }}'
    )


def lpm(value: str, bits: int, table: str = "lpm_table") -> str:
    return (
        f"table_entry {{ table_id: ${table} "
        f'match {{ field_id: 1 lpm {{ value: "{value}" prefix_len: {bits} }} }} '
        "action { action { action_id: $NoAction } } }"
    )


def ternary(match: str, priority: int = 10) -> str:
    return (
        f"table_entry {{ table_id: $ternary_table priority: {priority} {match} "
        "action { action { action_id: $NoAction } } }"
    )


def source(value: str, mask: str) -> str:
    return f'match {{ field_id: 1 ternary {{ value: "{value}" mask: "{mask}" }} }}'


def kinds(low: str, high: str) -> str:
    return f'match {{ field_id: 2 range {{ low: "{low}" high: "{high}" }} }}'


@requires("6.1", "6", "The ids of the P4Info have the prefix of their kind of entity.")
def _(t: Trial) -> None:
    info = t.session.config("P4INFO_AND_COOKIE").p4info
    for prefix, entities in (
        (2, info.tables),
        (1, info.actions),
        (0x11, info.action_profiles),
        (0x12, info.counters),
        (0x14, info.meters),
        (0x16, info.registers),
    ):
        for entity in entities:
            t.holds(entity.preamble.id >> 24 == prefix, f"id {entity.preamble.id:#x}")


@requires("6.2", "6", "Ids of tables, actions and profiles that the P4Info lacks are refused.")
def _(t: Trial) -> None:
    for text in (
        exact().replace("$exact_table", str(UNKNOWN_ID)),
        exact().replace("$forward", str(0x01FFFFF0)),
        (
            "action_profile_member { action_profile_id: 301989872 member_id: 1 "
            "action { action_id: $NoAction } }"
        ),
    ):
        t.refused("INSERT", text, INVALID, NOT_FOUND)


@requires("8.01", VALUES, "A match field of value zero is accepted and reads back.")
def _(t: Trial) -> None:
    t.do("INSERT", exact("\\x00", "\\x00"))
    t.same(exact("\\x00", "\\x00"))


@requires("8.02", VALUES, "A parameter of value zero is accepted and reads back.")
def _(t: Trial) -> None:
    t.do("INSERT", exact(action=forward("\\x00", "\\x00")))
    t.same(exact(action=forward("\\x00", "\\x00")))


@requires("8.10", VALUES, "A table entry reads back as it was written.")
def _(t: Trial) -> None:
    written = [
        exact(),
        lpm("\\x0a\\x00\\x00\\x00\\x00\\x00", 8),
        ternary(source("\\x0a", "\\xff") + kinds("\\x01", "\\x09")),
    ]
    t.do("INSERT", *written)
    t.same(*written)


MEMBER = (
    "action_profile_member { action_profile_id: $chooser member_id: %d "
    'action { action_id: $forward params { param_id: 1 value: "\\x02" } '
    'params { param_id: 2 value: "\\x00" } } }'
)


def group(number: int, *members: int, size: int = 8) -> str:
    parts = " ".join(f"members {{ member_id: {member} weight: 1 }}" for member in members)
    return (
        f"action_profile_group {{ action_profile_id: $chooser group_id: {number} "
        f"max_size: {size} {parts} }}"
    )


@requires("8.11", VALUES, "A member of an action profile reads back as it was written.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1)
    t.same(MEMBER % 1)


@requires("8.12", VALUES, "A group of an action profile reads back as it was written.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1, MEMBER % 2, group(1, 1, 2))
    t.same(group(1, 1, 2))


REGISTER = 'register_entry { register_id: $last_type index { index: %d } data { bitstring: "%s" } }'


@requires("8.13", VALUES, "A register reads back as it was written.")
def _(t: Trial) -> None:
    t.do("MODIFY", REGISTER % (3, "\\x01\\x02"))
    t.same(REGISTER % (3, "\\x01\\x02"))


@requires(
    "8.1",
    VALUES,
    "A byte string may have leading zeros; one that is empty or too wide is refused.*",
)
def _(t: Trial) -> None:
    t.do("INSERT", exact("\\x00\\x00\\x00\\x0a", "\\x00\\x01"))
    t.refused("INSERT", exact("\\x0b", "\\x02\\x00"), OUT_OF_RANGE, INVALID)
    t.refused("INSERT", exact("\\x0b", ""), OUT_OF_RANGE, INVALID)


@requires(
    "8.2",
    VALUES,
    "Value and mask of a ternary field may have different lengths, and neither may be too wide.*",
)
def _(t: Trial) -> None:
    t.do("INSERT", ternary(source("\\x0a", "\\xff\\xff")))
    t.refused("INSERT", ternary(source("\\x0a", "\\x01" + "\\xff" * 6)), OUT_OF_RANGE, INVALID)


@requires("8.3", VALUES, "The value of an LPM field may not be too wide, nor its prefix too long.")
def _(t: Trial) -> None:
    t.refused("INSERT", lpm("\\x01" + "\\x00" * 6, 8), OUT_OF_RANGE, INVALID)
    t.refused("INSERT", lpm("\\x0a", 49), OUT_OF_RANGE, INVALID)


@requires("8.4", VALUES, "The ends of a range may not be too wide.")
def _(t: Trial) -> None:
    t.refused("INSERT", ternary(kinds("\\x01", "\\x01\\x00\\x00")), OUT_OF_RANGE, INVALID)


@requires("8.4a", VALUES, "The low end of a range may not be above its high end.")
def _(t: Trial) -> None:
    t.refused("INSERT", ternary(kinds("\\x09", "\\x01")), INVALID)


@requires("8.5", VALUES, "Bits of a ternary value outside its mask have to be zero.")
def _(t: Trial) -> None:
    t.refused("INSERT", ternary(source("\\x0f", "\\xf0")), INVALID)


@requires("8.6", VALUES, "Bits of an LPM value behind its prefix have to be zero.")
def _(t: Trial) -> None:
    t.refused("INSERT", lpm("\\x0a\\x00\\x00\\x00\\x00\\x01", 8), INVALID)


@requires("8.7", VALUES, "Reads have the shortest byte string of each value.*")
def _(t: Trial) -> None:
    t.do("INSERT", exact("\\x00\\x00\\x00\\x0a", "\\x00\\x01", forward("\\x00\\x02", "\\x00")))
    t.same(exact())


@requires(
    "8.20",
    VALUES,
    "Values of structs and headers are written and read (value sets, digests).",
    extra=True,
)
def _(t: Trial) -> None:
    t.do("INSERT", DIGEST)
    t.same(DIGEST)


DIGEST = "digest_entry { digest_id: $station_t config { max_list_size: 1 } }"


@requires("9.1", TABLES, "A Write without a pipeline ends with FAILED_PRECONDITION.")
def _(t: Trial) -> None:
    with t.empty() as empty:
        t.holds(empty.session.codes([t.program.exact(1)]) == [PRECONDITION], "another status")


@requires("9.2", TABLES, "INSERT adds an entry.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.same(exact())


@requires("9.3", TABLES, "INSERT of an entry that exists ends with ALREADY_EXISTS.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.refused("INSERT", exact(action=forward("\\x03")), EXISTS)


@requires("9.4", TABLES, "MODIFY changes an entry.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.do("MODIFY", exact(action=forward("\\x03")))
    t.same(exact(action=forward("\\x03")))


@requires("9.5", TABLES, "MODIFY of an entry that does not exist ends with NOT_FOUND.")
def _(t: Trial) -> None:
    t.refused("MODIFY", exact(), NOT_FOUND)


@requires("9.6", TABLES, "DELETE removes an entry.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.do("DELETE", exact())
    t.holds(t.read("table_entry { table_id: $exact_table }") == [], "it is still there")


@requires("9.7", TABLES, "DELETE of an entry that does not exist ends with NOT_FOUND.")
def _(t: Trial) -> None:
    t.refused("DELETE", exact(), NOT_FOUND)


@requires("9.8", TABLES, "An unknown table is refused (NOT_FOUND or INVALID_ARGUMENT).*")
def _(t: Trial) -> None:
    t.refused("INSERT", exact().replace("$exact_table", str(UNKNOWN_ID)), NOT_FOUND, INVALID)


@requires(
    "9.9",
    TABLES,
    "An entry lives from INSERT over MODIFY to DELETE, and a second DELETE ends with NOT_FOUND.",
)
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.do("MODIFY", exact(action=forward("\\x03")))
    t.do("DELETE", exact())
    t.refused("DELETE", exact(), NOT_FOUND)


@requires("9.10", TABLES, "An unknown action is refused.")
def _(t: Trial) -> None:
    t.refused("INSERT", exact().replace("$forward", str(0x01FFFFF0)), INVALID)


@requires("9.11", TABLES, "An action that is not one of the table's is refused.")
def _(t: Trial) -> None:
    t.refused("INSERT", exact(action="action { action { action_id: $learn } }"), INVALID)


@requires("9.12", TABLES, "Too few and too many parameters are refused.")
def _(t: Trial) -> None:
    few = 'action { action { action_id: $forward params { param_id: 1 value: "\\x02" } } }'
    many = forward().replace("} }", "", 0)
    many = many[: many.rindex("} }")] + 'params { param_id: 3 value: "\\x00" } } }'
    t.refused("INSERT", exact(action=few), INVALID)
    t.refused("INSERT", exact(action=many), INVALID)


@requires("9.13", TABLES, "A parameter that the action does not have is refused.")
def _(t: Trial) -> None:
    t.refused("INSERT", exact(action=forward().replace("param_id: 2", "param_id: 7")), INVALID)


@requires("9.14", TABLES, "A parameter that is too wide is refused.")
def _(t: Trial) -> None:
    t.refused("INSERT", exact(action=forward("\\x02\\x00")), OUT_OF_RANGE, INVALID)


@requires("9.15", TABLES, "A match field that the table does not have is refused.")
def _(t: Trial) -> None:
    t.refused("INSERT", exact().replace("field_id: 2", "field_id: 9"), INVALID)


@requires("9.16", TABLES, "A match of another kind than the field's is refused.")
def _(t: Trial) -> None:
    wrong = exact().replace('exact { value: "\\x0a" }', 'ternary { value: "\\x0a" mask: "\\xff" }')
    t.refused("INSERT", wrong, INVALID)


@requires("9.17", TABLES, "A match value that is too wide is refused.")
def _(t: Trial) -> None:
    t.refused("INSERT", exact("\\x01" + "\\x00" * 6), OUT_OF_RANGE, INVALID)


@requires("9.18", TABLES, "A missing exact field is refused.")
def _(t: Trial) -> None:
    t.refused(
        "INSERT", exact().replace('match { field_id: 2 exact { value: "\\x01" } }', ""), INVALID
    )


@requires("9.19", TABLES, "A field that comes twice is refused.")
def _(t: Trial) -> None:
    t.refused("INSERT", ternary(source("\\x0a", "\\xff") * 2), INVALID)


@requires("9.20", TABLES, "Entries with ternary, range or optional fields need a priority.")
def _(t: Trial) -> None:
    t.refused("INSERT", ternary(source("\\x0a", "\\xff"), 0), INVALID)


@requires("9.21", TABLES, "Entries of exact fields alone have no priority.")
def _(t: Trial) -> None:
    t.refused("INSERT", exact().replace("match", "priority: 3 match", 1), INVALID)


@requires("9.22", TABLES, "DELETE looks at the key alone.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.do("DELETE", exact(action="action { action { action_id: 33554431 } }"))


@requires(
    "9.23",
    TABLES,
    "Values of translated types without a width (sdn_string) are not checked for one.",
)
def _(t: Trial) -> None:
    _strings(t)


def _strings(t: Trial) -> Trial:
    """Return a trial of the router whose ports are strings."""
    router = t.using_strings()
    entry = (
        "table_entry { table_id: $next_hop_table "
        'match { field_id: 1 exact { value: "\\x05" } } '
        'action { action { action_id: $send params { param_id: 1 value: "Ethernet1/0" } '
        'params { param_id: 2 value: "\\x0a" } params { param_id: 3 value: "\\x0b" } } } }'
    )
    router.do("INSERT", entry)
    router.same(entry)
    return router


@requires(
    "9.24",
    TABLES,
    "A table of constant entries refuses INSERT, MODIFY and DELETE (PERMISSION_DENIED).",
)
def _(t: Trial) -> None:
    new = (
        "table_entry { table_id: $const_table "
        'match { field_id: 1 exact { value: "\\x07" } } '
        "action { action { action_id: $NoAction } } }"
    )
    for kind, text in (("INSERT", new), ("MODIFY", CONST), ("DELETE", CONST)):
        t.refused(kind, text, DENIED, INVALID)


CONST = (
    "table_entry { table_id: $const_table "
    'match { field_id: 1 exact { value: "\\x90\\x01" } } '
    "action { action { action_id: $NoAction } } }"
)


def default(table: str, action: str) -> str:
    return f"table_entry {{ table_id: ${table} is_default_action: true {action} }}"


NO_ACTION = "action { action { action_id: $NoAction } }"


@requires("9.25", TABLES, "A default entry has no match fields.")
def _(t: Trial) -> None:
    text = default("exact_table", NO_ACTION).replace(
        "is_default", 'match { field_id: 1 exact { value: "\\x0a" } } is_default'
    )
    t.refused("MODIFY", text, INVALID)


@requires("9.26", TABLES, "A default entry is changed by MODIFY alone.")
def _(t: Trial) -> None:
    t.do("MODIFY", default("exact_table", NO_ACTION))
    t.same(default("exact_table", NO_ACTION))
    t.refused("INSERT", default("exact_table", NO_ACTION), INVALID)
    t.refused("DELETE", default("exact_table", NO_ACTION), INVALID)


@requires("9.27", TABLES, "A full table ends INSERT with RESOURCE_EXHAUSTED.")
def _(t: Trial) -> None:
    updates = [
        t.program.update("INSERT", lpm(f"\\x{n:02x}\\x00\\x00\\x00\\x00\\x00", 8))
        for n in range(1, 64)
    ]
    codes = t.session.codes(updates)
    t.holds(set(codes) == {OK, EXHAUSTED}, f"{set(codes)}")
    t.holds(codes[:16] == [OK] * 16, "less than its size")


@requires(
    "9.28", TABLES, "Updates of a batch are applied so that the result is that of their order."
)
def _(t: Trial) -> None:
    update = t.program.update
    updates = [
        update("INSERT", exact()),
        update("MODIFY", exact(action=forward("\\x03"))),
        update("DELETE", exact()),
        update("INSERT", exact()),
    ]
    t.holds(t.session.codes(updates) == [OK] * 4, "refused")
    t.same(exact())


@requires(
    "9.29", TABLES, "A read of entries has their direct counters and meters if it asks for them."
)
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    (entity,) = t.read("table_entry { table_id: $exact_table counter_data { } }")
    t.holds(entity.table_entry.HasField("counter_data"), "no counter")
    t.do("INSERT", METERED)
    (entity,) = t.read("table_entry { table_id: $meter_table meter_config { } }")
    t.holds(entity.table_entry.meter_config.cir == 100, "no meter")


METERED = (
    'table_entry { table_id: $meter_table match { field_id: 1 exact { value: "\\x0a" } } '
    "action { action { action_id: $measure } } "
    "meter_config { cir: 100 cburst: 10 pir: 200 pburst: 20 } }"
)


@requires("9.30a", TABLES, "Constant entries are there from the start, and readable.")
def _(t: Trial) -> None:
    t.holds(len(t.read("table_entry { table_id: $const_table }")) == 2, "not two entries")


@requires(
    "9.30b", TABLES, "INSERT into a table of constant entries is refused (PERMISSION_DENIED)."
)
def _(t: Trial) -> None:
    t.refused("INSERT", CONST.replace("\\x90\\x01", "\\x07"), DENIED, INVALID)


@requires("9.30c", TABLES, "MODIFY of a constant entry is refused (PERMISSION_DENIED).")
def _(t: Trial) -> None:
    t.refused("MODIFY", CONST, DENIED, INVALID)


IDLE = (
    'table_entry { table_id: $idle_table match { field_id: 1 exact { value: "\\x0a" } } '
    "action { action { action_id: $NoAction } } idle_timeout_ns: 100000000 }"
)


@requires(
    "9.30d",
    TABLES,
    "An entry of a table with idle time-outs has one, which reads back.",
    extra=True,
)
def _(t: Trial) -> None:
    t.do("INSERT", IDLE)
    (entity,) = t.read("table_entry { table_id: $idle_table }")
    t.holds(entity.table_entry.idle_timeout_ns == 100_000_000, "no time-out")


@requires("14.7", "16", "An entry that nothing matches for its time-out is reported.", extra=True)
def _(t: Trial) -> None:
    t.do("INSERT", IDLE)
    answer = t.session.receive("idle_timeout_notification")
    t.holds(len(answer.idle_timeout_notification.table_entry) == 1, "not one entry")


@requires("11.1", "13", "A Read without a pipeline ends with FAILED_PRECONDITION.")
def _(t: Trial) -> None:
    with t.empty() as empty:
        t.ends(lambda: empty.read("table_entry { }"), PRECONDITION)


@requires("11.2", "13", "A wildcard reads the entries of all tables.")
def _(t: Trial) -> None:
    t.do("INSERT", exact(), lpm("\\x0a\\x00\\x00\\x00\\x00\\x00", 8))
    tables = {entity.table_entry.table_id for entity in t.read("table_entry { }")}
    t.holds({t.program.ids["exact_table"], t.program.ids["lpm_table"]} <= tables, "one is missing")


@requires("11.3", "13", "A read of an empty table is empty.")
def _(t: Trial) -> None:
    t.holds(t.read("table_entry { table_id: $exact_table }") == [], "not empty")


@requires("11.4", "13", "A table's id reads its entries alone.")
def _(t: Trial) -> None:
    t.do("INSERT", exact(), lpm("\\x0a\\x00\\x00\\x00\\x00\\x00", 8))
    entities = t.read("table_entry { table_id: $lpm_table }")
    t.holds(
        [entity.table_entry.table_id for entity in entities] == [t.program.ids["lpm_table"]],
        "others, too",
    )


@requires("11.5", "13", "A Read of nothing returns nothing.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.holds(t.session.read() == [], "something")


@requires("11.6", "13", "A key reads its entry alone.")
def _(t: Trial) -> None:
    t.do("INSERT", exact(), exact("\\x0b"))
    entities = t.read(exact(action=""))
    t.holds(entities == [t.program.entity(exact())], f"{len(entities)} entries")


@requires("11.7", "13", "A wildcard reads all members and groups.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1, MEMBER % 2, group(1, 1))
    t.holds(len(t.read("action_profile_member { }")) == 2, "not two members")
    t.holds(len(t.read("action_profile_group { }")) == 1, "not one group")


@requires("11.8", "13", "A wildcard reads all cells of a register.")
def _(t: Trial) -> None:
    t.holds(len(t.read("register_entry { register_id: $last_type }")) == 8, "not 8 cells")


@requires("11.9", "13", "A register that was never written is zero.")
def _(t: Trial) -> None:
    (entity,) = t.read("register_entry { register_id: $last_type index { index: 5 } }")
    t.holds(entity.register_entry.data.bitstring == b"\0", "another value")


@requires("11.10", "13", "A read of default entries has that of each table.")
def _(t: Trial) -> None:
    entities = t.read("table_entry { table_id: $exact_table is_default_action: true }")
    t.holds(
        [entity.table_entry.action.action.action_id for entity in entities]
        == [t.program.ids["drop"]],
        "another",
    )


@requires("11.11", "13", "A Read of another device ends with NOT_FOUND.")
def _(t: Trial) -> None:
    t.ends(lambda: t.session.read(t.program.entity("table_entry { }"), device_id=99), NOT_FOUND)


@requires("11.12", "13", "A Read may ask for several kinds of entities.")
def _(t: Trial) -> None:
    t.do("INSERT", exact(), MEMBER % 1)
    read = t.read(
        "table_entry { table_id: $exact_table }",
        "action_profile_member { }",
        "register_entry { register_id: $last_type index { index: 1 } }",
    )
    seen = [entity.WhichOneof("entity") for entity in read]
    t.holds(seen == ["table_entry", "action_profile_member", "register_entry"], f"{seen}")


@requires("11.13", "13", "A Read sees all of a Write or nothing of it.")
def _(t: Trial) -> None:
    import threading

    updates = [t.program.exact(n) for n in range(1, 301)]
    deletions = [t.program.exact(n, kind="DELETE") for n in range(1, 301)]
    counts: set[int] = set()
    ended = threading.Event()
    reader = t.open(-1)

    def look() -> None:
        query = t.program.entity("table_entry { table_id: $exact_table }")
        while not ended.is_set():
            counts.add(len(reader.read(query)))

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(5):
        t.session.codes(updates)
        t.session.codes(deletions)
    ended.set()
    thread.join()
    t.holds(counts <= {0, 300}, f"{sorted(counts)[:5]} entries")


@requires(
    "9.80",
    "12",
    "CONTINUE_ON_ERROR applies all updates that can be, and has an error for each other.",
)
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    update = t.program.update
    codes = t.session.codes([update("INSERT", exact()), update("INSERT", exact("\\x0b"))])
    t.holds(codes == [EXISTS, OK], f"{codes}")
    t.same(exact("\\x0b"))


def _atomic(t: Trial, atomicity: int) -> None:
    update = t.program.update
    codes = t.session.codes(
        [update("INSERT", exact()), update("DELETE", exact("\\x0b"))], atomicity
    )
    t.holds(any(codes), "accepted")
    t.holds(t.read("table_entry { table_id: $exact_table }") == [], "the first update stays")


@requires("9.81", "12", "ROLLBACK_ON_ERROR undoes the batch at an error (or is UNIMPLEMENTED).")
def _(t: Trial) -> None:
    _atomic(t, p4r.WriteRequest.ROLLBACK_ON_ERROR)


@requires("9.82", "12", "DATAPLANE_ATOMIC does all or nothing (or is UNIMPLEMENTED).")
def _(t: Trial) -> None:
    _atomic(t, p4r.WriteRequest.DATAPLANE_ATOMIC)


@requires("9.83", "12", "A batch that fails has an error for each update, in their order.")
def _(t: Trial) -> None:
    update = t.program.update
    errors = t.session.errors(
        [
            update("INSERT", exact()),
            update("MODIFY", exact("\\x0b")),
            update("INSERT", exact("\\x0c")),
        ]
    )
    t.holds(
        [error.canonical_code for error in errors] == [OK, NOT_FOUND, OK],
        f"{[e.canonical_code for e in errors]}",
    )


@requires("9.90", "12", "A Write to another device ends with NOT_FOUND.")
def _(t: Trial) -> None:
    t.holds(t.session.codes([t.program.exact(1)], device_id=99) == [NOT_FOUND], "another status")


@requires("9.91", "12", "A Write without a stream needs the election id of the primary.*")
def _(t: Trial) -> None:
    other = t.bare()
    other.election_id = t.session.election_id
    t.holds(other.codes([t.program.exact(1)]) == [OK], "with the id it is refused")
    other.election_id = None
    t.holds(other.codes([t.program.exact(2)]) == [DENIED], "without an id it is accepted")


@requires("9.92", "12", "An update's error has a canonical code and a message.")
def _(t: Trial) -> None:
    (error,) = t.session.errors([t.program.update("MODIFY", exact())])
    t.holds(error.canonical_code == NOT_FOUND and error.message, f"{error}")


@requires("9.93", "12", "A batch may have a member, its group and the entry that refers to it.")
def _(t: Trial) -> None:
    entry = (
        "table_entry { table_id: $selector_table "
        'match { field_id: 1 exact { value: "\\x0a" } } '
        "action { action_profile_group_id: 1 } }"
    )
    t.do("INSERT", MEMBER % 1, group(1, 1), entry)
    t.do("DELETE", entry, group(1), MEMBER % 1)


def ok(call: Any) -> bool:
    return code_of(call) == OK
