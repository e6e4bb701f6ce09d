"""Reading files that people write: YAML in, checked models or one kind of error out.

Every error is one line, ``FILE: PATH.OF.KEY: reason (what to do)``, fit to be shown as it is.
Models derive from `Section`. A check that pydantic cannot express raises `problem`, which carries
the path of the key below the model that found it.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar, Self, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from echelon.model.errors import Code, CodedError
from echelon.model.quantities import (
    MAX_TEXT,
    QuantityError,
    duration_s,
    duration_text,
    excerpt,
    rate_bps,
    rate_text,
    size_bytes,
    size_text,
)

MAX_DOCUMENT_BYTES = 4 << 20
"""The size of the largest file that is read; a larger one is certainly a mistake."""

MAX_DEPTH = 64
"""Greatest depth of nested lists and mappings."""
MAX_CHOICES = 16
"""The most known names that an error lists, and unknown keys that are explained."""
MAX_NAMED = 5
"""Number of unknown keys that are named where there are more."""

Key = str | int
"""One step of the path of a key: a name in a mapping or an index (from 0) in a list."""


class DocumentError(CodedError):
    """A fault in a file, described for the person who wrote it."""

    code: Code = "invalid-value"

    def __init__(
        self,
        file: str,
        path: str,
        reason: str,
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(file, path, reason, code=code)
        self.file = file
        """The file as the user named it."""
        self.path = path
        """Path of the key, like ``jobs[0].pipeline.activation``, or a line and column.

        Empty: the file as a whole.
        """
        self.reason = reason
        """The mistake, and in brackets its remedy."""
        self.other_faults: tuple[DocumentError, ...] = ()
        """The further mistakes of the document, where they are known."""

    def __str__(self) -> str:
        parts = filter(None, (self.file, self.path, self.reason))
        return " ".join(": ".join(parts).split())


def problem(
    reason: str,
    *path: Key,
    code: Code = "invalid-value",
) -> PydanticCustomError:
    """Return an error about the key `path` for a validator to raise.

    The path is relative to the model or value that it validates.
    """
    return PydanticCustomError(code, "{reason}", {"reason": reason, "at": path, "code": code})


def conflict(reason: str, *path: Key) -> PydanticCustomError:
    """Return an error about a key that does not go with others."""
    return problem(reason, *path, code="conflicting-key")


def missing(remedy: str, *path: Key) -> PydanticCustomError:
    """Return an error about a key that has to be there."""
    return problem(f"is missing ({remedy})", *path, code="missing-key")


def duplicate(reason: str, *path: Key) -> PydanticCustomError:
    """Return an error about a value that is there twice."""
    return problem(reason, *path, code="duplicate")


def refuse(faults: Iterable[PydanticCustomError]) -> None:
    """Raise all faults that a validator of a model has found, if there are any."""
    details = [InitErrorDetails(type=fault, input=None) for fault in faults]
    if details:
        raise ValidationError.from_exception_data("document", details)


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return what to write instead of an unknown word: the nearest of `words`, or all of them."""
    choices = list(words)
    nearest = _nearest(word, choices)
    if nearest is not None:
        return f"did you mean '{nearest}'?"
    if len(choices) > MAX_CHOICES:
        choices[MAX_CHOICES:] = ["..."]
    return f"known: {', '.join(choices) or 'none'}"


def _nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the word that is most similar to `word`, if any is similar."""
    # Nothing is similar to a word of that length, and the search would be slow.
    if len(word) > MAX_TEXT:
        return None
    matches = difflib.get_close_matches(word, [*words], n=1)
    if matches:
        return matches[0]
    return None


class Section(BaseModel):
    """A mapping in a document.

    It refuses unknown keys, and describes a required key that is missing.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _check_keys(cls, data: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return validate(data)
        if data.keys() <= cls.model_fields.keys() and data.keys() >= _required(cls).keys():
            return validate(data)
        unknown = [str(key) for key in data if key not in cls.model_fields]
        if len(unknown) > MAX_CHOICES:
            # Each explanation takes a millisecond, and nobody reads so many.
            named = ", ".join(map(excerpt, unknown[:MAX_NAMED]))
            more = len(unknown) - MAX_NAMED
            reason = f"has {len(unknown)} unknown keys, {named} and {more} more (remove them)"
            faults = [problem(reason, code="unknown-key")]
            meant = set[str | None]()
        else:
            meant = {_nearest(key, cls.model_fields) for key in unknown}
            faults = []
            for key in unknown:
                reason = f"unknown key ({suggestion(key, cls.model_fields)})"
                faults.append(problem(reason, key, code="unknown-key"))
        for key in _required(cls):
            if key not in data and key not in meant:
                description = cls.model_fields[key].description
                faults.append(missing(f"give {description}", key))
        try:
            validate({key: value for key, value in data.items() if key in cls.model_fields})
        except ValidationError as error:
            details = error.errors(include_url=False)
            value_faults = [_as_raised(fault) for fault in details if fault["type"] != "missing"]
        else:
            value_faults = []
        key_faults = [InitErrorDetails(type=fault, input=data) for fault in faults]
        raise ValidationError.from_exception_data(cls.__name__, [*key_faults, *value_faults])


@cache
def _required(section: type[Section]) -> dict[str, None]:
    """Return the required keys, in the order of the fields."""
    fields = section.model_fields.items()
    return dict.fromkeys(key for key, field in fields if field.is_required())


S = TypeVar("S", bound=Section)


STANDARD_INPUT = "standard input"
"""The name of standard input in errors."""


def read_document(path: str | Path) -> dict[str, object]:
    """Return the mapping in the YAML file `path`. Raises `DocumentError`."""
    file = str(path)
    with _opened(path) as stream:
        return _mapping(_loaded(stream, file, lambda text: yaml.load(text, _Loader)), file)


def read_documents(path: str | Path) -> dict[str, dict[str, object]]:
    """Return the mappings in a YAML file, which ``---`` separates, by their names in errors.

    Raises `DocumentError`. The path ``-`` is standard input. Empty documents are left out, unless
    there is nothing else.
    """
    file = STANDARD_INPUT if str(path) == "-" else str(path)
    with nullcontext(sys.stdin.buffer) if str(path) == "-" else _opened(path) as stream:
        documents = _loaded(stream, file, lambda text: list(yaml.load_all(text, _Loader)))
    mappings = {}
    for number, data in enumerate(documents, start=1):
        if data is not None:
            name = f"{file}, document {number}" if len(documents) > 1 else file
            mappings[name] = _mapping(data, name)
    if not mappings:
        _mapping(None, file)
    return mappings


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    try:
        with Path(path).open("rb") as stream:
            yield stream
    except OSError as error:
        reason = f"{error.strerror or error} (check the path)"
        raise DocumentError(str(path), "", reason, code="unreadable-file") from None


def _loaded(
    stream: BinaryIO,
    file: str,
    load: Callable[[str], T],
) -> T:
    """Return what `load` makes of the text. Raises `DocumentError`."""
    raw = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        reason = f"is larger than {MAX_DOCUMENT_BYTES >> 20} MiB (check that it is the right file)"
        raise DocumentError(file, "", reason, code="too-large")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8 text (save the file as UTF-8)"
        raise DocumentError(file, "", reason, code="not-utf8") from None
    try:
        _check_depth(text)
        return load(text)
    except yaml.MarkedYAMLError as error:
        reason = _yaml_reason(error)
        raise DocumentError(file, _position(error), reason, code=_yaml_code(error)) from None
    except yaml.reader.ReaderError as error:
        reason = f"{excerpt(chr(error.character))} does not belong in a text (remove it)"
        place = f"character {error.position}"
        raise DocumentError(file, place, reason, code="bad-syntax") from None
    except ValueError as error:
        # A date that does not exist, or an integer of more digits than Python reads.
        reason = f"holds a value that YAML cannot read: {error} (quote it)"
        raise DocumentError(file, "", reason, code="bad-syntax") from None


def _mapping(data: object, file: str) -> dict[str, object]:
    if data is None:
        reason = "is empty (a mapping of keys to values is expected)"
        raise DocumentError(file, "", reason, code="empty-document")
    if not isinstance(data, dict):
        reason = f"is a {_yaml_type(data)} (a mapping of keys to values is expected)"
        raise DocumentError(file, "", reason, code="not-a-mapping")
    return data


def parse_document(
    model: type[S],
    data: object,
    file: str,
    context: Mapping[str, object] | None = None,
) -> S:
    """Return `data` as a `model`.

    Raises `DocumentError` for the first fault in `file`, which has the others, too.
    """
    try:
        return model.model_validate(data, context=context and dict(context))
    except ValidationError as error:
        raise _first(file, error.errors(include_url=False)) from None


def _first(file: str, faults: Sequence[ErrorDetails]) -> DocumentError:
    # A list whose items are all at fault counts as too short.
    inner: set[tuple[Key, ...]] = set()
    for fault in faults:
        place = fault["loc"]
        inner.update(place[:depth] for depth in range(1, len(place)))
    kept = [fault for fault in faults if fault["type"] != "too_short" or fault["loc"] not in inner]
    first, *later = [_document_error(file, fault) for fault in kept]
    first.other_faults = tuple(later)
    return first


def _document_error(file: str, error: ErrorDetails) -> DocumentError:
    path: tuple[Key, ...] = error.get("ctx", {}).get("at", ())
    # If a key itself is at fault, pydantic appends a step that is not a key.
    place = error["loc"]
    if place[-1:] == ("[key]",):
        place = place[:-1]
    full_path = path_text((*place, *path))
    return DocumentError(file, full_path, _reason(error), code=_code(error))


def path_text(path: Iterable[Key]) -> str:
    """Return a path of keys as people write it: ``("jobs", 0, "data")`` is ``jobs[0].data``."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            # A key may be any text, also control characters for the terminal, or pages.
            is_plain = key.isprintable() and len(key) <= MAX_TEXT
            word = key if is_plain else excerpt(key)
            text += f".{word}" if text else word
    return text


# -- values in files -------------------------------------------------------------------------------

T = TypeVar("T")


def _positive(parse: Callable[[object], T]) -> Callable[[object], T]:
    def check(value: object) -> T:
        parsed = parse(value)
        if parsed == 0:
            raise QuantityError(f"{excerpt(value)} is zero (give more than 0)", code="too-small")
        return parsed

    return check


def _one_or_list(parse: Callable[[object], T]) -> Callable[[object], T | tuple[T, ...]]:
    """Return a validator of one value or a list of them.

    It names the faulty item; a union of types would not.
    """

    def check(value: object) -> T | tuple[T, ...]:
        if not isinstance(value, list | tuple):
            return parse(value)
        items: list[T] = []
        for index, item in enumerate(value):
            try:
                items.append(parse(item))
            except QuantityError as error:
                raise problem(str(error), index, code=error.code) from None
        return tuple(items)

    return check


def _written(text: Callable[[T], object]) -> PlainSerializer:
    """Return a serializer of one value or a list.

    With it, ``model_dump(mode="json")`` returns a document that can be read again.
    """

    def write(value: T | tuple[T, ...]) -> object:
        if isinstance(value, tuple):
            return [text(item) for item in value]
        return text(value)

    return PlainSerializer(write, when_used="json")


def _real(value: object) -> Fraction:
    # The comparison is false for NaN.
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 10**9:
        # The file says the shortest decimal form of the float, not its binary value.
        return Fraction(repr(value))
    raise QuantityError(
        f"{excerpt(value)} is not a number between -10^9 and 10^9 (write for example 0.5)",
        code="not-a-number",
    )


def _positive_real(value: object) -> Fraction:
    parsed = _real(value)
    if parsed <= 0:
        raise QuantityError(
            f"{excerpt(value)} is not positive (give more than 0)", code="too-small"
        )
    return parsed


def _named(pattern: str, words: str) -> Callable[[object], str]:
    """Return a validator of a text that matches `pattern`; `words` say what that is."""
    compiled = re.compile(pattern)

    def check(value: object) -> str:
        if not isinstance(value, str):
            raise QuantityError(
                f"{excerpt(value)} is not text (YAML reads it as a {_yaml_type(value)}: quote it)",
                code="not-text",
            )
        if not compiled.fullmatch(value):
            raise QuantityError(f"{excerpt(value)} is not {words}", code="not-a-name")
        return value

    return check


def _schema(example: str) -> dict[str, Any]:
    pattern = r"^\s*[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?\s*([A-Za-zµμ]\S*)?\s*$"
    quantity = {"type": "string", "pattern": pattern, "maxLength": MAX_TEXT, "examples": [example]}
    return {"anyOf": [quantity, {"const": 0}]}


def _or_list(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schema["anyOf"], {"type": "array", "items": schema}]}


_DURATION = _schema("10 ms")
_SIZE = _schema("2.5 MB")
_RATE = _schema("10 Mbit/s")
_REAL = {"type": "number", "minimum": -(10**9), "maximum": 10**9}

_AS_DURATION = _written(duration_text)
_AS_SIZE = _written(size_text)
_AS_RATE = _written(rate_text)
_AS_REAL: PlainSerializer = _written(float)

Duration = Annotated[Fraction, PlainValidator(duration_s), _AS_DURATION, WithJsonSchema(_DURATION)]
"""Seconds; 0 or more."""
PositiveDuration = Annotated[
    Fraction, PlainValidator(_positive(duration_s)), _AS_DURATION, WithJsonSchema(_DURATION)
]
Durations = Annotated[
    Fraction | tuple[Fraction, ...],
    PlainValidator(_one_or_list(duration_s)),
    _AS_DURATION,
    WithJsonSchema(_or_list(_DURATION)),
]
"""Seconds: one duration for all, or a list."""
Size = Annotated[int, PlainValidator(_positive(size_bytes)), _AS_SIZE, WithJsonSchema(_SIZE)]
"""Bytes; 1 or more."""
Sizes = Annotated[
    int | tuple[int, ...],
    PlainValidator(_one_or_list(_positive(size_bytes))),
    _AS_SIZE,
    WithJsonSchema(_or_list(_SIZE)),
]
Rate = Annotated[int, PlainValidator(_positive(rate_bps)), _AS_RATE, WithJsonSchema(_RATE)]
"""Bits per second; 1 or more."""
Real = Annotated[Fraction, PlainValidator(_real), _AS_REAL, WithJsonSchema(_REAL)]
PositiveReal = Annotated[
    Fraction,
    PlainValidator(_positive_real),
    _AS_REAL,
    WithJsonSchema({**_REAL, "exclusiveMinimum": 0}),
]
_NAME = "[A-Za-z][A-Za-z0-9_-]{0,31}"
_STEP_NAME = "[A-Za-z][A-Za-z0-9_.-]{0,63}"
NAME = re.compile(_NAME)
Name = Annotated[
    str,
    PlainValidator(_named(_NAME, "a name (up to 32 letters, digits, '-', '_'; a letter first)")),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$", "examples": ["h1"]}),
]
"""The name of a job, host, switch...: up to 32 letters, digits, '-' and '_'; a letter first."""
StepName = Annotated[
    str,
    PlainValidator(
        _named(
            _STEP_NAME,
            "the name of a step (up to 64 letters, digits, '.', '-', '_'; a letter first)",
        )
    ),
    WithJsonSchema({"type": "string", "pattern": f"^{_STEP_NAME}$", "examples": ["forward-l1-w1"]}),
]
"""The name of a step of a job: up to 64 letters, digits, '.', '-' and '_'; a letter first."""
Count = Annotated[int, Field(strict=True, ge=1, le=10**6)]
"""A whole number; 1 or more."""
UpTo1000 = Annotated[int, Field(strict=True, ge=1, le=1000)]
UpTo10000 = Annotated[int, Field(strict=True, ge=1, le=10_000)]
UpTo100000 = Annotated[int, Field(strict=True, ge=1, le=100_000)]


# -- from errors of the libraries to ours ----------------------------------------------------------


class _Loader(yaml.CSafeLoader):
    """A loader that refuses two things that YAML allows.

    These are a key given twice, of which the last would win, and a key that is not text.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                if key.tag != "tag:yaml.org,2002:str":
                    reason = f"key {_key_text(key)} is not text (quote it)"
                    raise _fault(reason, key.start_mark, "not-text")
                if key.value in seen:
                    reason = f"duplicate key {excerpt(key.value)} (keep one of them)"
                    raise _fault(reason, key.start_mark, "duplicate-key")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _check_depth(text: str) -> None:
    """Raise an error for nesting too deep for the stack of libyaml's recursive composer."""
    reason = f"is nested more than {MAX_DEPTH} deep (flatten it)"
    depth = 0
    try:
        for event in yaml.parse(text, yaml.CSafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    raise _fault(reason, event.start_mark, "nested-too-deep")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.MarkedYAMLError as error:
        # Recent versions of libyaml have a limit of their own, which they may meet while they look
        # ahead.
        if "nesting depth" in (error.problem or ""):
            raise _fault(reason, error.problem_mark, "nested-too-deep") from None
        raise


class _Fault(yaml.constructor.ConstructorError):
    """A fault that this module refuses although YAML allows it."""

    code: Code


def _fault(
    reason: str,
    mark: Any,
    code: Code,
) -> _Fault:
    fault = _Fault(None, None, reason, mark)
    fault.code = code
    return fault


def _yaml_code(error: yaml.MarkedYAMLError) -> Code:
    if isinstance(error, _Fault):
        return error.code
    return "bad-syntax"


def _key_text(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return excerpt(node.value)
    return "that is a list or mapping"


def _position(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    if mark:
        return f"line {mark.line + 1}, column {mark.column + 1}"
    return ""


def _yaml_reason(error: yaml.MarkedYAMLError) -> str:
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    # Our own reasons already end with what to do.
    if reason.endswith(")"):
        return reason
    return f"{reason} (correct the YAML)"


def _yaml_type(value: object) -> str:
    named = {
        dict: "mapping",
        list: "list",
        str: "text",
        bool: "truth value",
        int: "number",
        float: "number",
    }
    return named.get(type(value), "null" if value is None else type(value).__name__)


def _as_raised(error: ErrorDetails) -> InitErrorDetails:
    """Return an error in the form in which it can be raised once more."""
    context = error.get("ctx", {})
    kind: str | PydanticCustomError = error["type"]
    if "reason" in context:
        kind = PydanticCustomError(context["code"], "{reason}", context)
    return InitErrorDetails(type=kind, loc=error["loc"], input=error["input"], ctx=context)


_CODES: Mapping[str, Code] = {
    "int_type": "not-a-number",
    "int_from_float": "not-a-number",
    "int_parsing": "not-a-number",
    "greater_than_equal": "too-small",
    "less_than_equal": "too-large",
    "int_parsing_size": "too-large",
    "string_type": "not-text",
    "literal_error": "not-allowed",
    "tuple_type": "not-a-list",
    "list_type": "not-a-list",
    "model_type": "not-a-mapping",
    "dict_type": "not-a-mapping",
    "model_attributes_type": "not-a-mapping",
    "too_short": "wrong-length",
    "too_long": "wrong-length",
}
"""Our code for each type of error that pydantic reports."""


def _code(error: ErrorDetails) -> Code:
    context = error.get("ctx", {})
    if "code" in context:
        code: Code = context["code"]
        return code
    raised = context.get("error")
    if isinstance(raised, CodedError):
        return raised.code
    return _CODES.get(error["type"], "invalid-value")


def _reason(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    value = error["input"]
    if "reason" in context:
        return str(context["reason"])
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "int_type" | "int_from_float" | "int_parsing":
            return f"{excerpt(value)} is not a whole number (write for example 3)"
        case "greater_than_equal":
            return f"{excerpt(value)} is too small (give {context['ge']} or more)"
        case "less_than_equal":
            return f"{excerpt(value)} is too large (give {context['le']} or less)"
        case "int_parsing_size":
            return f"{excerpt(value)} is too large (give a smaller number)"
        case "string_type":
            return (
                f"{excerpt(value)} is not text (YAML reads it as a {_yaml_type(value)}: quote it)"
            )
        case "literal_error":
            return f"{excerpt(value)} is not allowed (use {context['expected']})"
        case "tuple_type" | "list_type":
            return f"{excerpt(value)} is not a list (write it as [a, b])"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"{excerpt(value)} is not a mapping (write it as {{key: value}})"
        case "too_short":
            return f"has {context['actual_length']} items (give at least {context['min_length']})"
        case "too_long":
            return f"has {context['actual_length']} items (give at most {context['max_length']})"
        case _:
            return f"{error['msg'][0].lower()}{error['msg'][1:]} (correct the value)"
