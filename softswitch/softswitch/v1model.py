"""What v1model and simple_switch lay down for every engine: numbers, limits, and the primitives
that a program may use."""

from __future__ import annotations

from collections.abc import Mapping

from . import ir
from .errors import ProgramError

INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 1, 2, 4, 5, 6
"""The values of ``instance_type``. 0 is a packet that was received and sent to one port."""

PARSER_ERRORS: Mapping[str, int] = {
    "PacketTooShort": 1,
    "NoMatch": 2,
    "StackOutOfBounds": 3,
    "HeaderTooShort": 4,
    "ParserTimeout": 5,
    "ParserInvalidArgument": 6,
}
"""The codes of the parser's errors in a program that does not number them itself."""

STATE_LIMIT = 1 << 12
"""The number of states that a parser may visit.

Parsing of a packet that visits more ends with ParserTimeout.
"""

LOOP_LIMIT = 1 << 12
"""The number of times that an action may jump back. A packet for which it does so more often is
dropped, so that no program can stop the switch."""

RESUBMIT_LIMIT = 64
"""The number of times that a packet may be resubmitted before it is dropped, for the same
reason.
"""

SHIFT_LIMIT = ir.MAX_WIDTH
"""The limit of left shifts. No field is wider, so a larger shift leaves nothing of a value."""

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
    **dict.fromkeys(("drop", "exit", "no_op"), 0),
    **dict.fromkeys(
        ("add_header", "add_header_fast", "remove_header", "mark_to_drop", "truncate"), 1
    ),
    **dict.fromkeys(("resubmit", "recirculate", "assert", "assume", "_jump"), 1),
    **dict.fromkeys(
        ("assign", "assign_VL", "assign_header", "assign_union", "assign_header_stack"), 2
    ),
    **dict.fromkeys(
        ("assign_union_stack", "copy_header", "modify_field", "push", "pop", "count", "log_msg"), 2
    ),
    **dict.fromkeys(
        ("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress", "generate_digest"), 2
    ),
    **dict.fromkeys(("add_to_field", "subtract_from_field", "_jump_if_zero"), 2),
    **dict.fromkeys(
        ("register_read", "register_write", "execute_meter", "modify_field_rng_uniform"), 3
    ),
    **dict.fromkeys(
        ("add", "subtract", "bit_xor", "bit_or", "bit_and", "shift_left", "shift_right"), 3
    ),
    "modify_field_with_hash_based_offset": 4,
}
"""How many arguments each primitive takes."""

_ONLY_IN: Mapping[str, str] = {
    **dict.fromkeys(("generate_digest", "clone_ingress_pkt_to_egress", "resubmit"), "ingress"),
    **dict.fromkeys(("clone_egress_pkt_to_egress", "recirculate"), "egress"),
    **dict.fromkeys(
        ("mark_to_drop", "drop", "truncate", "exit", "count", "execute_meter"), "control"
    ),
}
"""The places at which primitives with limited use are allowed; control is ingress or egress."""


def check_primitive(primitive: ir.Primitive, kind: str) -> None:
    """Refuse a primitive that is unknown, has the wrong number of arguments, or may not be used in
    ``kind``, which is parser, ingress, egress or deparser."""
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
    if only != kind and (only != "control" or kind in ("parser", "deparser")):
        raise ProgramError(place, f"primitive '{op}' can be used in {only} only")


def check_jumps(body: tuple[ir.Primitive, ...]) -> Mapping[int, int]:
    """Return where each jump of an action leads, by its position.

    Refuse one that leads out of the action.
    """
    targets = {}
    for at, primitive in enumerate(body):
        if primitive.op in ("_jump", "_jump_if_zero"):
            check_primitive(primitive, "control")
            to = primitive.args[-1]
            if not isinstance(to, ir.Const) or not 0 <= to.value <= len(body):
                raise ProgramError(
                    primitive.place, f"must jump to one of the {len(body)} primitives of the action"
                )
            targets[at] = to.value
    return targets
