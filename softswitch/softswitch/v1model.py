"""The numbers, limits and primitives that v1model and simple_switch lay down for every engine."""

from __future__ import annotations

from collections.abc import Mapping

from . import ir
from .errors import ProgramError

INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 1, 2, 4, 5, 6
"""The values of ``instance_type``. 0 is a packet that was received and sent to one port."""

CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
"""The parser's errors that every program has."""

STATE_LIMIT = 1 << 12
"""The number of states that a parser may visit.

Parsing of a packet that visits more ends with ParserTimeout.
"""

LOOP_LIMIT = 1 << 12
"""The number of times that an action may jump back.

A packet for which it does so more often is dropped, so that no program can stop the switch.
"""

RESUBMIT_LIMIT = 64
"""The number of times that a packet may be resubmitted before it is dropped.

The reason is the same.
"""

SHIFT_LIMIT = ir.MAX_WIDTH
"""The limit of left shifts. No field is wider, so a larger shift leaves nothing of a value."""

MAX_PACKET_BYTES = 1 << 18
"""The longest packet that ingress takes and egress makes.

No interface has longer frames, and a packet that grows on each pass ends here.
"""

TOO_LONG = "packet too long"
"""Why a longer packet is dropped."""

NEVER_TRUNCATED = 1 << 31
"""A length in bytes that no packet has."""

OPERATORS: Mapping[str, str] = {
    "add": "+",
    "add_to_field": "+",
    "subtract": "-",
    "subtract_from_field": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}
"""The primitives of P4_14 that assign the result of an operator to their first argument."""

_ARITY: Mapping[str, int] = {
    "drop": 0,
    "exit": 0,
    "no_op": 0,
    "add_header": 1,
    "add_header_fast": 1,
    "remove_header": 1,
    "mark_to_drop": 1,
    "truncate": 1,
    "resubmit": 1,
    "recirculate": 1,
    "assert": 1,
    "assume": 1,
    "_jump": 1,
    "assign": 2,
    "assign_VL": 2,
    "assign_header": 2,
    "assign_union": 2,
    "assign_header_stack": 2,
    "assign_union_stack": 2,
    "copy_header": 2,
    "modify_field": 2,
    "push": 2,
    "pop": 2,
    "count": 2,
    "log_msg": 2,
    "clone_ingress_pkt_to_egress": 2,
    "clone_egress_pkt_to_egress": 2,
    "generate_digest": 2,
    "add_to_field": 2,
    "subtract_from_field": 2,
    "_jump_if_zero": 2,
    "register_read": 3,
    "register_write": 3,
    "execute_meter": 3,
    "modify_field_rng_uniform": 3,
    "add": 3,
    "subtract": 3,
    "bit_xor": 3,
    "bit_or": 3,
    "bit_and": 3,
    "shift_left": 3,
    "shift_right": 3,
    "modify_field_with_hash_based_offset": 4,
}
"""The number of arguments of each primitive."""

_ONLY_IN: Mapping[str, str] = {
    "generate_digest": "ingress",
    "clone_ingress_pkt_to_egress": "ingress",
    "resubmit": "ingress",
    "clone_egress_pkt_to_egress": "egress",
    "recirculate": "egress",
    "mark_to_drop": "control",
    "drop": "control",
    "truncate": "control",
    "exit": "control",
    "count": "control",
    "execute_meter": "control",
}
"""The places at which primitives with limited use are allowed; control is ingress or egress."""


def check_primitive(primitive: ir.Primitive, kind: str) -> None:
    """Refuse a primitive that is unknown, misplaced, or has the wrong number of arguments.

    ``kind`` is the place: parser, ingress, egress or deparser.
    """
    op = primitive.op
    place = primitive.place
    wanted = _ARITY.get(op)
    if wanted is None:
        raise ProgramError(
            place, f"primitive '{op}' is not supported: it is an extern outside v1model"
        )
    if len(primitive.args) != wanted:
        raise ProgramError(place, f"takes {wanted} arguments, has {len(primitive.args)}")
    only = _ONLY_IN.get(op, kind)
    is_control = kind not in ("parser", "deparser")
    if only != kind and not (only == "control" and is_control):
        raise ProgramError(place, f"primitive '{op}' can be used in {only} only")


def check_jumps(body: tuple[ir.Primitive, ...]) -> Mapping[int, int]:
    """Return where each jump of an action leads, by its position.

    Refuse one that leads out of the action.
    """
    targets = {}
    for position, primitive in enumerate(body):
        if primitive.op not in ("_jump", "_jump_if_zero"):
            continue
        check_primitive(primitive, "control")
        target = primitive.args[-1]
        if not isinstance(target, ir.Const) or not 0 <= target.value <= len(body):
            raise ProgramError(
                primitive.place, f"must jump to one of the {len(body)} primitives of the action"
            )
        targets[position] = target.value
    return targets
