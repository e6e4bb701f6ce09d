"""Pipelines, capabilities, translation, and the extensions (sections 14, 15, 17 and 18)."""

from __future__ import annotations

import re

from finsy.proto import p4r

from tests.conformance.arbitration import IPV4, route
from tests.conformance.entries import exact, lpm
from tests.conformance.requirement import (
    DENIED,
    INVALID,
    NOT_FOUND,
    OK,
    PRECONDITION,
    Trial,
    requires,
)
from tests.conformance.session import code_of

SET = "7, 14"
GET = "15"
CAPABILITIES = "17"
TRANSLATION = "8.4.6, 18"
REFERS = "@refers_to"
RESTRICTS = "p4-constraints"


@requires("7.1", SET, "A valid pipeline is loaded.")
def _(t: Trial) -> None:
    t.session.pipeline("VERIFY_AND_COMMIT", t.program.config())
    t.do("INSERT", exact())


@requires("7.2", SET, "Another pipeline replaces the first.")
def _(t: Trial) -> None:
    routed = t.using("router")
    route(routed)
    t.refused("INSERT", exact(), INVALID, NOT_FOUND)


@requires("7.3", SET, "A pipeline without P4Info and program is refused.")
def _(t: Trial) -> None:
    t.ends(lambda: t.session.pipeline("VERIFY_AND_COMMIT", p4r.ForwardingPipelineConfig()), INVALID)
    t.ends(lambda: t.session.pipeline("VERIFY_AND_COMMIT"), INVALID)


@requires("7.4", SET, "A program that is none is refused (INVALID_ARGUMENT).")
def _(t: Trial) -> None:
    config = t.program.config()
    config.p4_device_config = b"no program"
    t.ends(lambda: t.session.pipeline("VERIFY_AND_COMMIT", config), INVALID)


@requires("7.5", SET, "A pipeline without a program is refused (INVALID_ARGUMENT).")
def _(t: Trial) -> None:
    config = t.program.config()
    config.p4_device_config = b""
    t.ends(lambda: t.session.pipeline("VERIFY_AND_COMMIT", config), INVALID)


@requires("7.6", SET, "Only the primary sets the pipeline.")
def _(t: Trial) -> None:
    backup = t.open(-1)
    t.ends(lambda: backup.pipeline("VERIFY_AND_COMMIT", t.program.config()), DENIED)


@requires("7.7", SET, "VERIFY changes nothing.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.session.pipeline("VERIFY", t.program.config())
    t.same(exact())


@requires("7.8", SET, "VERIFY_AND_COMMIT takes effect at once.")
def _(t: Trial) -> None:
    t.session.pipeline("VERIFY_AND_COMMIT", t.program.config(7))
    t.holds(t.session.config("COOKIE_ONLY").cookie.cookie == 7, "the old one")


@requires("7.9", SET, "VERIFY_AND_SAVE and COMMIT set a pipeline in two steps.")
def _(t: Trial) -> None:
    t.session.pipeline("VERIFY_AND_SAVE", t.program.config(8))
    t.session.pipeline("COMMIT")
    t.holds(t.session.config("COOKIE_ONLY").cookie.cookie == 8, "the old one")


@requires(
    "7.9a", SET, "RECONCILE_AND_COMMIT keeps the entries that the new program has a place for."
)
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    t.session.pipeline("RECONCILE_AND_COMMIT", t.program.config())
    t.same(exact())


@requires("7.9b", SET, "RECONCILE_AND_COMMIT of a program that has no place for them is refused.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    other = t.program_named("router")
    t.ends(lambda: t.session.pipeline("RECONCILE_AND_COMMIT", other.config()), INVALID)
    t.same(exact())


@requires("7.10", SET, "The cookie is kept, and returned.")
def _(t: Trial) -> None:
    t.session.pipeline("VERIFY_AND_COMMIT", t.program.config(1234567890123))
    t.holds(t.session.config().cookie.cookie == 1234567890123, "another cookie")


@requires("7.11", SET, "Setting a pipeline removes all entries.")
def _(t: Trial) -> None:
    t.do("INSERT", exact(), lpm("\\x0a\\x00\\x00\\x00\\x00\\x00", 8))
    t.session.pipeline("VERIFY_AND_COMMIT", t.program.config())
    t.holds(
        t.read("table_entry { table_id: $exact_table }", "table_entry { table_id: $lpm_table }")
        == [],
        "some are left",
    )


@requires("7.12", SET, "Constant entries are there once the pipeline is set.")
def _(t: Trial) -> None:
    t.session.pipeline("VERIFY_AND_COMMIT", t.program.config())
    t.holds(len(t.read("table_entry { table_id: $const_table }")) == 2, "they are not")


@requires("12.1", GET, "The P4Info comes back.")
def _(t: Trial) -> None:
    t.holds(t.session.config().p4info == t.program.p4info, "another one")


@requires(
    "12.2", GET, "Without a pipeline, there is no config in the answer (or FAILED_PRECONDITION).*"
)
def _(t: Trial) -> None:
    with t.empty() as empty:
        if code_of(empty.session.config) != PRECONDITION:
            t.holds(empty.session.config() == p4r.ForwardingPipelineConfig(), "there is one")


@requires("12.3", GET, "P4INFO_AND_COOKIE leaves the program out.")
def _(t: Trial) -> None:
    config = t.session.config("P4INFO_AND_COOKIE")
    t.holds(config.HasField("p4info") and not config.p4_device_config, "not so")


@requires("12.4", GET, "DEVICE_CONFIG_AND_COOKIE leaves the P4Info out.")
def _(t: Trial) -> None:
    config = t.session.config("DEVICE_CONFIG_AND_COOKIE")
    t.holds(config.p4_device_config == t.program.json and not config.HasField("p4info"), "not so")


@requires("12.5", GET, "COOKIE_ONLY leaves both out.")
def _(t: Trial) -> None:
    t.session.pipeline("VERIFY_AND_COMMIT", t.program.config(5))
    config = t.session.config("COOKIE_ONLY")
    t.holds(
        config.cookie.cookie == 5 and not config.p4_device_config and not config.HasField("p4info"),
        "not so",
    )


@requires("12.6", GET, "Another device ends with NOT_FOUND.")
def _(t: Trial) -> None:
    t.ends(lambda: t.session.config(device_id=99), NOT_FOUND)


@requires("13.1", CAPABILITIES, "The server tells the version of the API.")
def _(t: Trial) -> None:
    answer = t.session.stub.Capabilities(p4r.CapabilitiesRequest(), timeout=10)
    t.holds(answer.p4runtime_api_version, "it does not")


@requires("13.2", CAPABILITIES, "The version is one of semantic versioning.")
def _(t: Trial) -> None:
    answer = t.session.stub.Capabilities(p4r.CapabilitiesRequest(), timeout=10)
    t.holds(
        re.fullmatch(r"\d+\.\d+\.\d+(-[\w.]+)?", answer.p4runtime_api_version),
        answer.p4runtime_api_version,
    )


ADMISSION = (
    "table_entry { table_id: $admission_table priority: 1 "
    'match { field_id: 2 optional { value: "%s" } } '
    "action { action { action_id: $admit } } }"
)


@requires(
    "15.1", TRANSLATION, "A value of a translated type may have the controller's width on write."
)
def _(t: Trial) -> None:
    routed = t.using("next_hops")
    routed.do("INSERT", ADMISSION % "\\x00\\x00\\x00\\x03")


@requires(
    "15.2", TRANSLATION, "A value of a translated type reads back as the controller wrote it."
)
def _(t: Trial) -> None:
    routed = t.using("next_hops")
    routed.do("INSERT", ADMISSION % "\\x03")
    routed.same(ADMISSION % "\\x03")


def _named(t: Trial) -> Trial:
    named = t.using_strings()
    named.do("INSERT", ADMISSION % "Ethernet1/0")
    return named


@requires("15.3", TRANSLATION, "Values of a type that is translated to strings are strings.")
def _(t: Trial) -> None:
    _named(t)


@requires("15.4", TRANSLATION, "Fields of other types in the same entry stay as they are.")
def _(t: Trial) -> None:
    routed = t.using("next_hops")
    text = (ADMISSION % "\\x03").replace(
        "match", 'match { field_id: 1 ternary { value: "\\x0a" mask: "\\xff" } } match', 1
    )
    routed.do("INSERT", text)
    routed.same(text)


@requires("15.5", TRANSLATION, "Packets go to the port that a translated value stands for.")
def _(t: Trial) -> None:
    routed = t.using("next_hops")
    route(routed, "\\\\x00\\\\x00\\\\x01\\\\xfe")
    routed.packet(IPV4, b"\0", b"\x01", b"\0")
    packet = routed.packet_in()
    t.holds(packet.payload[22] == 63, "another packet")


@requires("15.6", TRANSLATION, "Strings read back as they were written, in a program like SAI P4.")
def _(t: Trial) -> None:
    named = _named(t)
    named.same(ADMISSION % "Ethernet1/0")


NEXT_HOP = (
    'table_entry { table_id: $next_hop_table match { field_id: 1 exact { value: "\\x05" } } '
    'action { action { action_id: $send params { param_id: 1 value: "\\x03" } '
    'params { param_id: 2 value: "\\x0a" } params { param_id: 3 value: "\\x0b" } } } }'
)
ROUTE = (
    'table_entry { table_id: $route_table match { field_id: 1 exact { value: "\\x00" } } '
    'match { field_id: 2 lpm { value: "\\x0a\\x00\\x01\\x00" prefix_len: 24 } } '
    'action { action { action_id: $set_next_hop params { param_id: 1 value: "\\x05" } } } }'
)
NEIGHBOR = (
    'table_entry { table_id: $neighbor_table match { field_id: 1 exact { value: "\\x05" } } '
    "action { action { action_id: $NoAction } } }"
)
MEMBER = (
    "action_profile_member { action_profile_id: $groups member_id: 1 "
    'action { action_id: $set_next_hop params { param_id: 1 value: "\\x05" } } }'
)
ONE_SHOT = (
    'table_entry { table_id: $group_table match { field_id: 1 exact { value: "\\x09" } } '
    "action { action_profile_action_set { action_profile_actions { "
    'action { action_id: $set_next_hop params { param_id: 1 value: "\\x05" } } '
    "weight: 1 } } } }"
)


def _refers(t: Trial, text: str) -> None:
    routed = t.using("router")
    routed.refused("INSERT", text, INVALID, NOT_FOUND, PRECONDITION)
    routed.do("INSERT", NEXT_HOP, text)


@requires("17.1", REFERS, "A match field may only refer to an entry that exists.", extension=True)
def _(t: Trial) -> None:
    _refers(t, NEIGHBOR)


@requires("17.2", REFERS, "A parameter may only refer to an entry that exists.", extension=True)
def _(t: Trial) -> None:
    _refers(t, ROUTE)


@requires(
    "17.3",
    REFERS,
    "A member of an action profile may only refer to an entry that exists.",
    extension=True,
)
def _(t: Trial) -> None:
    _refers(t, MEMBER)


@requires("17.4", REFERS, "A one-shot group may only refer to entries that exist.", extension=True)
def _(t: Trial) -> None:
    _refers(t, ONE_SHOT)


@requires("17.5", REFERS, "A reference to a multicast group needs the group.", extension=True)
def _(t: Trial) -> None:
    routed = t.using_flood()
    text = (
        "table_entry { table_id: $neighbor_table "
        'match { field_id: 1 exact { value: "\\x05" } } '
        "action { action { action_id: $NoAction } } }"
    )
    routed.refused("INSERT", text, INVALID, NOT_FOUND, PRECONDITION)


@requires("17.6", REFERS, "DELETE is possible whatever the entry refers to.", extension=True)
def _(t: Trial) -> None:
    routed = t.using("router")
    routed.do("INSERT", NEXT_HOP, ROUTE)
    routed.do("DELETE", ROUTE)


RULE = (
    "table_entry { table_id: $rule_table priority: 1 "
    'match { field_id: 1 ternary { value: "%s" mask: "\\xff" } } '
    "action { action { action_id: $drop } } }"
)


@requires(
    "18.1",
    RESTRICTS,
    "An entry that its table's @entry_restriction allows is accepted, another not.",
    extension=True,
)
def _(t: Trial) -> None:
    routed = t.using("router")
    routed.do("INSERT", RULE % "\\x06")
    routed.refused("INSERT", RULE % "\\x00", INVALID)


@requires("18.2", RESTRICTS, "The refusal has the restriction in its text.", extension=True)
def _(t: Trial) -> None:
    routed = t.using("router")
    (error,) = routed.session.errors([routed.program.update("INSERT", RULE % "\\x00")]) or [
        p4r.Error()
    ]
    t.holds(error.canonical_code == INVALID and "protocol" in error.message, "it has not")


@requires("18.3", RESTRICTS, "DELETE is possible whatever the restriction says.", extension=True)
def _(t: Trial) -> None:
    routed = t.using("router")
    codes = routed.session.codes([routed.program.update("DELETE", RULE % "\\x00")])
    t.holds(codes[0] in (OK, NOT_FOUND), f"{codes}")


@requires("18.4", RESTRICTS, "A program without restrictions is served as ever.", extension=True)
def _(t: Trial) -> None:
    t.do("INSERT", exact())
