"""The text of an assembly file as nodes with line numbers. Nothing here knows what a section means.

The grammar is that of `asm-parse.ypp` and `lex-yaml.l` in p4c's `bf-asm`: a YAML-like language
whose keys may repeat and may have parameters (``stage 0 ingress:``, ``NoAction(1, 0):``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from softswitch.errors import ProgramError

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<pattern>0[xX][0-9a-fA-F_]*\*[0-9a-fA-F*_]*|0[oO][0-7_]*\*[0-7*_]*|0[bB][01_]*\*[01*_]*|\*)
    | (?P<number>0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9][0-9_]*)
    | (?P<range>\.\.)
    | (?P<name>[A-Za-z_@$](?:[-.]*[A-Za-z0-9_@$])*)
    | (?P<text>"(?:\\.|[^"\\])*")
    | (?P<shift><<|>>)
    | (?P<sign>[\[\](){}:,^|&!?.-])
    )""",
    re.VERBOSE,
)
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|#.*')
_DIGIT_BITS = {"x": 4, "o": 3, "b": 1}
_TIGHTNESS = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4}


def refusal(line: int, reason: str) -> ProgramError:
    """Return the error that refuses a line of the file being loaded."""
    return ProgramError(f"line {line}", reason)


@dataclass(frozen=True, slots=True)
class Term:
    """A value of the file; ``line`` counts from 1."""

    line: int


@dataclass(frozen=True, slots=True)
class Number(Term):
    value: int


@dataclass(frozen=True, slots=True)
class Name(Term):
    """An identifier, or a quoted text."""

    text: str


@dataclass(frozen=True, slots=True)
class Pattern(Term):
    """A number some of whose digits are ``*``. A bit that is clear in ``mask`` matches both."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Interval(Term):
    """Both ends belong to the range."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Invocation(Term):
    """A name, an operator or an instruction with its arguments."""

    name: str
    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Sequence(Term):
    items: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Mapping(Term):
    """Pairs in the order of the file. A key may occur more than once."""

    pairs: tuple[tuple[Term, Term], ...]

    def get(self, name: str) -> Term | None:
        """Return the value of the first key that is the plain name ``name``."""
        for key, value in self.pairs:
            if isinstance(key, Name) and key.text == name:
                return value
        return None


def mapping(node: Term | None) -> Mapping:
    """Return ``node`` if it is a mapping, or an empty one for None or an empty value.

    Everything else is refused.
    """
    if isinstance(node, Mapping):
        return node
    if node is None or (isinstance(node, Sequence) and not node.items):
        return Mapping(0 if node is None else node.line, ())
    raise refusal(node.line, "a mapping is expected here")


def items(node: Term | None) -> tuple[Term, ...]:
    """Return the elements of a sequence. A single value counts as a sequence of one."""
    if node is None:
        return ()
    if isinstance(node, Sequence):
        return node.items
    if isinstance(node, Mapping) and not node.pairs:
        return ()
    return (node,)


def number(node: Term | None, default: int | None = None) -> int:
    """Return an integer. ``default`` is for a missing value."""
    if node is None and default is not None:
        return default
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Name):
        try:
            return int(node.text, 0)
        except ValueError:
            pass
    raise refusal(0 if node is None else node.line, "a number is expected here")


def label(node: Term) -> str:
    """Return the name of a key for a refusal; other keys have no short name."""
    if isinstance(node, Invocation):
        return node.name
    if isinstance(node, Name):
        return node.text
    return "entry"


def text(node: Term) -> str:
    """Return a name; refuse everything else."""
    if isinstance(node, Name):
        return node.text
    raise refusal(node.line, "a name is expected here")


def bounds(node: Term) -> tuple[int, int]:
    """Return the (lowest, highest) of a range or a single number."""
    if isinstance(node, Interval):
        return node.low, node.high
    value = number(node)
    return value, value


@dataclass(frozen=True, slots=True)
class Section:
    """A top-level section with its parameters, such as ``stage 0 ingress``."""

    line: int
    name: str
    params: tuple[Term, ...]
    value: Term


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    text: str

    @property
    def is_item(self) -> bool:
        """Whether the line is an element of a list."""
        return self.text.startswith("- ") or self.text == "-"


# A fabric loads the same file once for each of its switches.
@lru_cache(maxsize=2)
def read_sections(source: str) -> tuple[Section, ...]:
    """Return the sections of a file.

    Raises :class:`ProgramError` with the line that cannot be read.
    """
    blocks = _Blocks(list(_lines(source)))
    sections = []
    for key, value in blocks.pairs(0):
        if isinstance(key, Invocation):
            sections.append(Section(key.line, key.name, key.args, value))
        else:
            sections.append(Section(key.line, text(key), (), value))
    return tuple(sections)


def _lines(source: str) -> Iterator[_Line]:
    """Yield the lines without comments, each joined with those that its open brackets reach."""
    held: list[str] = []
    first = indent = depth = 0
    for count, raw in enumerate(source.splitlines(), 1):
        bare = _COMMENT.sub(_without_comment, raw).rstrip()
        if not bare.strip():
            continue
        if not held:
            first = count
            indent = len(bare) - len(bare.lstrip())
        held.append(bare.strip())
        opened = sum(map(bare.count, "([{"))
        closed = sum(map(bare.count, ")]}"))
        depth += opened - closed
        if depth <= 0:
            yield _Line(first, indent, " ".join(held))
            held = []
            depth = 0
    if held:
        raise refusal(first, "a bracket is not closed")


def _without_comment(match: re.Match[str]) -> str:
    """Return what stays of a match of `_COMMENT`: a quoted text, in which a # may stand."""
    if match[0].startswith('"'):
        return match[0]
    return ""


class _Blocks:
    """The reader of indented blocks."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        self._index = 0

    def pairs(self, indent: int) -> list[tuple[Term, Term]]:
        """Read the ``key: value`` lines that stand at ``indent``."""
        pairs = []
        while self._index < len(self._lines):
            line = self._lines[self._index]
            if line.indent < indent or line.is_item:
                break
            if line.indent > indent:
                raise refusal(line.number, "this line is indented deeper than its neighbours")
            self._index += 1
            pairs.append(self._pair(line, line.text, indent))
        return pairs

    def _pair(
        self,
        line: _Line,
        source: str,
        indent: int,
    ) -> tuple[Term, Term]:
        tokens = _Tokens(line.number, source)
        if tokens.peek() == "?":
            tokens.take()
        key = tokens.value()
        tokens.expect(":")
        if tokens.more():
            return key, tokens.rest()
        return key, self._nested(line.number, indent)

    def _nested(self, number: int, indent: int) -> Term:
        """Read the block below a key.

        These are deeper lines, or a list that may stand at the key's own indentation.
        """
        if self._index < len(self._lines):
            line = self._lines[self._index]
            if line.is_item and line.indent >= indent:
                return Sequence(line.number, tuple(self._list(line.indent)))
            if line.indent > indent:
                return Mapping(line.number, tuple(self.pairs(line.indent)))
        return Mapping(number, ())

    def _list(self, indent: int) -> Iterator[Term]:
        while self._index < len(self._lines):
            line = self._lines[self._index]
            if line.indent != indent or not line.is_item:
                break
            self._index += 1
            yield self._item(line, line.text[1:].strip())

    def _item(self, line: _Line, content: str) -> Term:
        """Read an element of a list, whose first line is ``content`` behind the dash."""
        if not content:
            return Mapping(line.number, ())
        separator = _top_level(content)
        if separator == ":":
            pairs = [self._pair(line, content, line.indent)]
            if self._index < len(self._lines):
                deeper = self._lines[self._index].indent
                if deeper > line.indent:
                    pairs += self.pairs(deeper)
            return Mapping(line.number, tuple(pairs))
        tokens = _Tokens(line.number, content)
        if separator == ",":
            return tokens.instruction()
        return tokens.rest()


def _top_level(source: str) -> str:
    """Return the first colon or comma outside brackets and quotes, or nothing."""
    depth = 0
    for match in re.finditer(r'"(?:\\.|[^"\\])*"|[\[\](){}:,]', source):
        sign = match[0]
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif depth == 0 and sign in ":,":
            return sign
    return ""


class _Tokens:
    """The reader of the values of one line."""

    def __init__(self, line: int, source: str) -> None:
        self._line = line
        self._tokens: list[tuple[str, str]] = []
        index = 0
        end = len(source.rstrip())
        while index < end:
            token = _TOKEN.match(source, index)
            if token is None:
                raise refusal(line, f"'{source[index:].strip()[:20]}' cannot be read")
            kind = token.lastgroup
            assert kind is not None
            self._tokens.append((kind, token[kind]))
            index = token.end()
        self._index = 0

    def more(self) -> bool:
        return self._index < len(self._tokens)

    def peek(self) -> str:
        return self._tokens[self._index][1] if self.more() else ""

    def take(self) -> tuple[str, str]:
        if not self.more():
            raise refusal(self._line, "the line ends too early")
        self._index += 1
        return self._tokens[self._index - 1]

    def expect(self, sign: str) -> None:
        kind, token = self.take()
        if token != sign or kind == "text":
            raise refusal(self._line, f"'{sign}' is expected instead of '{token}'")

    def name(self) -> str:
        kind, token = self.take()
        if kind != "name":
            raise refusal(self._line, f"a name is expected instead of '{token}'")
        return token

    def instruction(self) -> Invocation:
        """Read a mnemonic and its operands, which have commas between them."""
        name = self.name()
        args = [self.value()]
        while self.more():
            self.expect(",")
            args.append(self.value())
        return Invocation(self._line, name, tuple(args))

    def rest(self) -> Term:
        """Read a value that must end with the line."""
        value = self.value()
        if self.more():
            raise refusal(self._line, f"'{self.peek()}' is not expected here")
        return value

    def value(self, tightness: int = 0) -> Term:
        """Read an expression of operators that bind tighter than ``tightness``."""
        left = self._unary()
        while True:
            operator = self.peek()
            if _TIGHTNESS.get(operator, 0) <= tightness:
                return left
            self.take()
            right = self.value(_TIGHTNESS[operator])
            args: tuple[Term, ...] = (left, right)
            # A chain of one operator is one node: `a ^ b ^ c`.
            if isinstance(left, Invocation) and left.name == operator and operator in "^|&":
                args = (*left.args, right)
            left = Invocation(self._line, operator, args)

    def _unary(self) -> Term:
        if self.peek() in ("-", "!"):
            sign = self.take()[1]
            operand = self._unary()
            if sign == "-" and isinstance(operand, Number):
                return Number(self._line, -operand.value)
            return Invocation(self._line, sign, (operand,))
        if self.peek() == "(":
            self.take()
            value = self.value()
            self.expect(")")
            return value
        return self._primary()

    def _primary(self, *, with_params: bool = True) -> Term:
        kind, token = self.take()
        if kind == "number":
            return self._numeric(token)
        if kind == "pattern":
            return self._pattern(token)
        if kind == "text":
            return Name(self._line, token[1:-1])
        if token == "[":
            return Sequence(self._line, tuple(self._elements("]")))
        if token == "{":
            return self._braces()
        if kind != "name":
            raise refusal(self._line, f"'{token}' is not expected here")
        args: list[Term] = []
        if self.peek() == "(":
            self.take()
            args = list(self._elements(")"))
            if not args:
                return Name(self._line, token)
        while with_params and self._is_param():
            args.append(self._primary(with_params=False))
        if args:
            return Invocation(self._line, token, tuple(args))
        return Name(self._line, token)

    def _numeric(self, digits: str) -> Term:
        """Read a number, or what one begins: an interval or a version."""
        value = self._integer(digits)
        if self.peek() == "..":
            self.take()
            _, last = self.take()
            return Interval(self._line, value, self._integer(last))
        if self.peek() == ".":
            return self._version(digits)
        return Number(self._line, value)

    def _is_param(self) -> bool:
        """Return whether a parameter follows a name, as in ``hash_dist 3``."""
        if not self.more():
            return False
        kind, token = self._tokens[self._index]
        return kind in ("number", "name", "pattern", "text") or token in ("[", "{")

    def _elements(self, end: str) -> Iterator[Term]:
        while self.peek() != end:
            yield self.value()
            if self.peek() != end:
                self.expect(",")
        self.take()

    def _braces(self) -> Mapping:
        pairs = []
        while self.peek() != "}":
            key = self.value()
            self.expect(":")
            pairs.append((key, self.value()))
            if self.peek() != "}":
                self.expect(",")
        self.take()
        return Mapping(self._line, tuple(pairs))

    def _version(self, token: str) -> Name:
        """Read dotted numbers, such as ``1.0.1``."""
        while self.peek() == ".":
            self.take()
            token = f"{token}.{self.take()[1]}"
        return Name(self._line, token)

    def _integer(self, digits: str) -> int:
        plain = digits.replace("_", "")
        try:
            has_prefix = plain[1:2] in tuple("xXoObB")
            return int(plain, 0 if has_prefix else 10)
        except ValueError:
            raise refusal(self._line, f"'{digits}' is not a number") from None

    def _pattern(self, digits: str) -> Pattern:
        value = mask = 0
        if digits != "*":
            bits = _DIGIT_BITS[digits[1].lower()]
            for digit in digits[2:].replace("_", ""):
                value <<= bits
                mask <<= bits
                if digit != "*":
                    value |= int(digit, 16)
                    mask |= (1 << bits) - 1
        return Pattern(self._line, value, mask)
