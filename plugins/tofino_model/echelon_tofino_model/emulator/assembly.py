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


def refusal(line: int, what: str) -> ProgramError:
    """Return the error that refuses a line of the file being loaded."""
    return ProgramError(f"line {line}", what)


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
    """Return ``node`` if it is a mapping, an empty one for None or an empty value; refuse
    everything else.
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
    """A top-level section, such as ``stage 0 ingress``: its name, its parameters and its
    content.
    """

    line: int
    name: str
    params: tuple[Term, ...]
    value: Term


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    text: str


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
        bare = _COMMENT.sub(
            lambda found: found[0] if found[0].startswith('"') else "", raw
        ).rstrip()
        if not bare.strip():
            continue
        if not held:
            first = count
            indent = len(bare) - len(bare.lstrip())
        held.append(bare.strip())
        depth += sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
        if depth <= 0:
            yield _Line(first, indent, " ".join(held))
            held = []
            depth = 0
    if held:
        raise refusal(first, "a bracket is not closed")


class _Blocks:
    """The reader of indented blocks."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        self._at = 0

    def pairs(self, indent: int) -> list[tuple[Term, Term]]:
        """Read the ``key: value`` lines that stand at ``indent``."""
        found = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.indent < indent or line.text.startswith("- ") or line.text == "-":
                break
            if line.indent > indent:
                raise refusal(line.number, "this line is indented deeper than its neighbours")
            self._at += 1
            found.append(self._pair(line, line.text, indent))
        return found

    def _pair(self, line: _Line, source: str, indent: int) -> tuple[Term, Term]:
        tokens = _Tokens(line.number, source)
        if tokens.peek() == "?":
            tokens.take()
        key = tokens.value()
        tokens.expect(":")
        return key, tokens.rest() if tokens.more() else self._nested(line.number, indent)

    def _nested(self, number: int, indent: int) -> Term:
        """Read the block below a key: deeper lines, or a list that may stand at the key's own
        indentation.
        """
        if self._at < len(self._lines):
            line = self._lines[self._at]
            is_list = line.text.startswith("- ") or line.text == "-"
            if is_list and line.indent >= indent:
                return Sequence(line.number, tuple(self._list(line.indent)))
            if line.indent > indent:
                return Mapping(line.number, tuple(self.pairs(line.indent)))
        return Mapping(number, ())

    def _list(self, indent: int) -> Iterator[Term]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.indent != indent or not (line.text.startswith("- ") or line.text == "-"):
                break
            self._at += 1
            content = line.text[1:].strip()
            if not content:
                yield Mapping(line.number, ())
            elif (split := _top_level(content)) == ":":
                pairs = [self._pair(line, content, indent)]
                if self._at < len(self._lines) and self._lines[self._at].indent > indent:
                    pairs += self.pairs(self._lines[self._at].indent)
                yield Mapping(line.number, tuple(pairs))
            elif split == ",":
                tokens = _Tokens(line.number, content)
                name = tokens.name()
                args = [tokens.value()]
                while tokens.more():
                    tokens.expect(",")
                    args.append(tokens.value())
                yield Invocation(line.number, name, tuple(args))
            else:
                yield _Tokens(line.number, content).rest()


def _top_level(source: str) -> str:
    """Return the first colon or comma outside brackets and quotes, or nothing."""
    depth = 0
    for found in re.finditer(r'"(?:\\.|[^"\\])*"|[\[\](){}:,]', source):
        sign = found[0]
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
        self._found: list[tuple[str, str]] = []
        at = 0
        while at < len(source.rstrip()):
            token = _TOKEN.match(source, at)
            if token is None:
                raise refusal(line, f"'{source[at:].strip()[:20]}' cannot be read")
            kind = token.lastgroup
            assert kind is not None
            self._found.append((kind, token[kind]))
            at = token.end()
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self._found)

    def peek(self) -> str:
        return self._found[self._at][1] if self.more() else ""

    def take(self) -> tuple[str, str]:
        if not self.more():
            raise refusal(self._line, "the line ends too early")
        self._at += 1
        return self._found[self._at - 1]

    def expect(self, sign: str) -> None:
        kind, found = self.take()
        if found != sign or kind == "text":
            raise refusal(self._line, f"'{sign}' is expected instead of '{found}'")

    def name(self) -> str:
        kind, found = self.take()
        if kind != "name":
            raise refusal(self._line, f"a name is expected instead of '{found}'")
        return found

    def rest(self) -> Term:
        """Read a value that must end with the line."""
        value = self.value()
        if self.more():
            raise refusal(self._line, f"'{self.peek()}' is not expected here")
        return value

    def value(self, tightness: int = 0) -> Term:
        left = self._unary()
        while (operator := self.peek()) in _TIGHTNESS and _TIGHTNESS[operator] > tightness:
            self.take()
            right = self.value(_TIGHTNESS[operator])
            if isinstance(left, Invocation) and left.name == operator and operator in "^|&":
                left = Invocation(self._line, operator, (*left.args, right))
            else:
                left = Invocation(self._line, operator, (left, right))
        return left

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
        kind, found = self.take()
        if kind == "number":
            value = self._integer(found)
            if self.more() and self._found[self._at][0] == "range":
                self.take()
                return Interval(self._line, value, self._integer(self.take()[1]))
            if self.peek() == ".":
                return self._version(found)
            return Number(self._line, value)
        if kind == "pattern":
            return self._pattern(found)
        if kind == "text":
            return Name(self._line, found[1:-1])
        if found == "[":
            return Sequence(self._line, tuple(self._elements("]")))
        if found == "{":
            return self._braces()
        if kind != "name":
            raise refusal(self._line, f"'{found}' is not expected here")
        args: list[Term] = []
        if self.peek() == "(":
            self.take()
            args = list(self._elements(")"))
            if not args:
                return Name(self._line, found)
        while with_params and self._is_param():
            args.append(self._primary(with_params=False))
        if args:
            return Invocation(self._line, found, tuple(args))
        return Name(self._line, found)

    def _is_param(self) -> bool:
        """Return whether a parameter follows a name, as in ``hash_dist 3``."""
        if not self.more():
            return False
        kind, found = self._found[self._at]
        return kind in ("number", "name", "pattern", "text") or found in ("[", "{")

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

    def _version(self, found: str) -> Name:
        """Read dotted numbers, such as ``1.0.1``."""
        while self.peek() == ".":
            self.take()
            found = f"{found}.{self.take()[1]}"
        return Name(self._line, found)

    def _integer(self, digits: str) -> int:
        plain = digits.replace("_", "")
        try:
            return int(plain, 0 if plain[1:2] in tuple("xXoObB") else 10)
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
