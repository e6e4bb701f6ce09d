"""A grammar of hostile programs: BMv2 JSON that is well formed, with sizes nobody expects.

A seed makes a program. About half of them load; the others have a part that is too large, does not
fit its place or does not exist.
"""

from __future__ import annotations

import random
from typing import Any

from tests.soak.hostile.plain import PLAIN_FIELDS, field, number, program

JSON = dict[str, Any]

EDGES = (
    *(0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 511, 512),
    *(1023, 4095, 4096, 4097, 8191, 8192, 65535, 65536, 65537, (1 << 17) - 1, 1 << 17, 1 << 18),
    *(1 << 20, 1 << 24, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32),
    *((1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1, 1 << 64, 1 << 65),
    *(8 * ((1 << 64) - 512), 8 * ((1 << 64) - 4096), 8 << 40, 1 << 4096, (1 << 65536) - 1),
)
"""Numbers at which something begins anew, overflows or stops to fit."""

WIDTHS = (1, 3, 8, 8, 9, 16, 32, 48, 63, 64, 65, 72, 127, 128, 136, 512, 1024, 4096)
RARE_WIDTHS = (0, 65535, 65536, 65537, 1 << 20, 1 << 32)
SIZES = (1, 1, 2, 7, 64, 1024, 1 << 16)
RARE_SIZES = (0, 1 << 20, 1 << 24, (1 << 24) + 1, 1 << 32, 1 << 64)
BINARY = ("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=")
ALGORITHMS = ("crc16", "crc32", "csum16", "xor16", "identity", "xxh64", "crc32_custom")


class Grammar:
    """The program of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        # How often a program has a rare number: most of its parts are to be reached by packets.
        self.evil = self.random.choice((0.0, 0.0, 0.004, 0.01, 0.05))
        self.fields: list[tuple[str, str]] = []
        self.headers: list[str] = []
        self.params = 0

    # -- numbers -----------------------------------------------------------------------------------

    def is_evil(self) -> bool:
        return self.random.random() < self.evil

    def width(self) -> int:
        return self.random.choice(RARE_WIDTHS if self.is_evil() else WIDTHS)

    def size(self) -> int:
        return self.random.choice(RARE_SIZES if self.is_evil() else SIZES)

    def edge(self) -> int:
        value = self.random.choice(EDGES if self.random.random() < 0.2 else EDGES[:24])
        return -value if self.random.random() < 0.02 else value

    # -- expressions -------------------------------------------------------------------------------

    def value(self, depth: int = 3) -> JSON:
        chosen = self.random.random()
        if depth <= 0 or chosen < 0.35:
            return self.leaf()
        if chosen < 0.37 and self.random.random() < 0.3:
            return self.chain()
        operator = self.random.choice(BINARY)
        if chosen < 0.9:
            return self.operation(operator, self.value(depth - 1), self.value(depth - 1))
        if chosen < 0.95:
            kind = self.random.choice(("two_comp_mod", "sat_cast", "usat_cast"))
            width = number(self.width())
            return self.operation(kind, self.value(depth - 1), width)
        inner = {"op": "?", "left": self.value(depth - 1), "right": self.value(depth - 1)}
        inner["cond"] = self.truth()
        return {"type": "expression", "value": inner}

    def truth(self) -> JSON:
        operator = self.random.choice(("==", "<", ">="))
        return self.operation(operator, self.leaf(), self.leaf())

    def chain(self) -> JSON:
        """Return an expression that is deep, or grows with each level."""
        value = self.leaf()
        operator = self.random.choice(("<<", "*", "+", ">>", "-", "/"))
        grows = self.random.random() < 0.5
        for _ in range(self.random.choice((5, 20, 60, 120, 200))):
            other = number(65535) if grows and operator == "<<" else self.leaf()
            pair = (value, other) if self.random.random() < 0.7 else (other, value)
            value = self.operation(operator, *pair)
        return value

    def operation(self, operator: str, left: JSON, right: JSON) -> JSON:
        inner = {"op": operator, "left": left, "right": right}
        return {"type": "expression", "value": inner}

    def leaf(self) -> JSON:
        if self.is_evil():
            return self.look()
        chosen = self.random.random()
        if chosen < 0.25:
            return number(self.edge())
        if chosen < 0.35 and self.params:
            return {"type": "runtime_data", "value": self.random.randrange(self.params)}
        if chosen < 0.4:
            index = number(self.edge()) if chosen < 0.37 else field(*self.any_field())
            return {"type": "register", "value": [f"r{self.random.randrange(2)}", index]}
        if chosen < 0.44:
            return {"type": "stack_field", "value": ["s", self.stack_field]}
        return field(*self.any_field())

    def look(self) -> JSON:
        """Return bits ahead of the parser, which may be assigned, and be part of a select's key."""
        offset = self.random.choice((0, 8, 13, 64, self.random.choice(EDGES[:-2])))
        return {"type": "lookahead", "value": [offset, self.width()]}

    def any_field(self) -> tuple[str, str]:
        return self.random.choice(self.fields)

    # -- statements --------------------------------------------------------------------------------

    def primitive(self) -> JSON:
        chosen = self.random.randrange(13)
        target = field(*self.any_field())
        header = {"type": "header", "value": self.random.choice(self.headers)}
        match chosen:
            case 0 | 1 | 2 | 3:
                return _call("assign", target, self.value())
            case 4:
                return _call("add_header", header)
            case 5:
                return _call("remove_header", header)
            case 6:
                stack = {"type": "header_stack", "value": "s"}
                return _call(self.random.choice(("push", "pop")), stack, number(abs(self.edge())))
            case 7:
                array = {"type": "register_array", "value": f"r{self.random.randrange(2)}"}
                return _call("register_write", array, self.value(1), self.value())
            case 8:
                array = {"type": "register_array", "value": f"r{self.random.randrange(2)}"}
                return _call("register_read", target, array, self.value(1))
            case 9:
                return _call("count", {"type": "counter_array", "value": "c"}, self.value(1))
            case 10:
                calculation = {"type": "calculation", "value": "hash"}
                least, size = number(abs(self.edge())), number(abs(self.edge()))
                name = "modify_field_with_hash_based_offset"
                return _call(name, target, least, calculation, size)
            case 11:
                return _call("truncate", self.value(1))
        return _call("execute_meter", {"type": "meter_array", "value": "m"}, self.value(1), target)

    def body(self, most: int) -> list[JSON]:
        body = [self.primitive() for _ in range(self.random.randrange(most))]
        if body and self.random.random() < 0.1:
            jump = _call("_jump_if_zero", self.value(1), number(self.random.randrange(len(body))))
            body.append(jump)
        return body

    def operations(self) -> list[JSON]:
        """Return what a parser's state does."""
        operations = []
        for _ in range(self.random.randrange(1, 5)):
            target = {"type": "regular", "value": self.random.choice("ab")}
            match self.random.randrange(6):
                case 0 | 1:
                    operations.append(_call("extract", target))
                case 2:
                    operations.append(_call("extract", {"type": "stack", "value": "s"}))
                case 3:
                    value = self.look() if self.random.random() < 0.3 else self.value()
                    operations.append(_call("set", field(*self.any_field()), value))
                case 4:
                    bits = self.value(1)
                    if self.random.random() < 0.9:
                        bits = number(8 * (abs(self.edge()) >> 3))
                    operations.append(_call("advance", bits))
                case 5:
                    length = self.value(1) if self.is_evil() else field("v", "f0")
                    operations.append(_call("extract_VL", dict(target, value="v"), length))
        return operations

    # -- the whole ---------------------------------------------------------------------------------

    def types(self) -> dict[str, list[list[Any]]]:
        """Return the fields of each header, in whole bytes."""
        types: dict[str, list[list[Any]]] = {}
        for name in ("a", "b", "s0"):
            fields = []
            for index in range(self.random.randrange(1, 5)):
                signed = self.random.random() < 0.2
                fields.append([f"f{index}", self.width(), signed])
            spare = -sum(width for _, width, _ in fields) % 8
            if spare:
                fields.append(["pad", spare, False])
            types[name] = fields
        types["v"] = [["f0", 8, False], ["rest", "*"], ["f1", 16, False]]
        return types

    def make(self) -> JSON:
        """Return the program."""
        types = self.types()
        scalars = [[f"x{index}", self.width(), self.random.random() < 0.2] for index in range(4)]
        self.headers = ["a", "b", "v"]
        for name in ("a", "b"):
            self.fields += [(name, entry[0]) for entry in types[name]]
        self.fields += [("v", "f0"), ("v", "f1")]
        self.fields += [("scalars", entry[0]) for entry in scalars]
        self.fields += [("standard_metadata", name) for name in PLAIN_FIELDS]
        self.stack_field = types["s0"][0][0]
        document = program(types, scalars, self.random.randrange(1, 5))
        arrays = ("register_arrays", "counter_arrays", "meter_arrays")
        for kind in arrays:
            for array in document[kind]:
                array["size"] = self.size()
        for array in document["register_arrays"]:
            array["bitwidth"] = self.width()
        self._fill_parser(document)
        self._fill_actions(document)
        self._fill_calculations(document)
        order = [self.random.choice(("a", "b", "v", "s[0]")) for _ in range(3)]
        if self.is_evil():
            order *= self.random.choice((100, 10_000))
        document["deparsers"][0]["order"] = order
        return document

    def _fill_parser(self, document: JSON) -> None:
        states = document["parsers"][0]["parse_states"]
        names = ["start", "next", None]
        for state in states:
            state["parser_ops"] = self.operations()
            is_ahead = self.random.random() < 0.2
            state["transition_key"] = [self.look() if is_ahead else field(*self.any_field())]
            arms = []
            for _ in range(self.random.randrange(3)):
                value = hex(abs(self.edge()) & 255)
                target = self.random.choice(names)
                arms.append({"type": "hexstr", "value": value, "mask": None, "next_state": target})
            last = self.random.choice(names[1:])
            arms.append({"type": "default", "value": None, "mask": None, "next_state": last})
            state["transitions"] = arms

    def _fill_actions(self, document: JSON) -> None:
        first, second = document["actions"]
        first["primitives"] += self.body(8)
        widths = [self.width() for _ in range(self.random.randrange(3))]
        second["runtime_data"] = [
            {"name": f"p{index}", "bitwidth": width} for index, width in enumerate(widths)
        ]
        self.params = len(widths)
        second["primitives"] = self.body(8)
        self.params = 0
        table = document["pipelines"][1]["tables"][0]
        data = [hex(abs(self.edge())) for _ in widths]
        table["default_entry"] = {
            "action_id": 1, "action_const": False, "action_data": data,
            "action_entry_const": False,
        }  # fmt: skip
        kind = self.random.choice(("exact", "ternary", "range"))
        table["match_type"] = kind
        for index in range(self.random.randrange(4) * (50 if self.is_evil() else 1)):
            key = {"match_type": kind, "name": f"k{index}", "target": list(self.any_field())}
            table["key"].append(dict(key, mask=None))

    def _fill_calculations(self, document: JSON) -> None:
        inputs: list[JSON] = [field(*self.any_field()) for _ in range(self.random.randrange(1, 5))]
        inputs += [{"type": "header", "value": name} for name in self.random.sample("abv", 2)]
        if self.random.random() < 0.3:
            inputs.append({"type": "payload", "value": None})
        if self.is_evil():
            inputs *= self.random.choice((20, 2_000))
        document["calculations"][0].update(algo=self.random.choice(ALGORITHMS), input=inputs)

    def packets(self, count: int) -> list[bytes]:
        """Return packets: some too short for anything, some as long as an interface sends."""
        lengths = (0, 1, 7, 20, 64, 64, 128, 300, 1500, 9000)
        packets = []
        for _ in range(count):
            packets.append(self.random.randbytes(self.random.choice(lengths)))
        return packets


def _call(op: str, *parameters: JSON) -> JSON:
    return {"op": op, "parameters": list(parameters)}
