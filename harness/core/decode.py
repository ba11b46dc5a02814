"""Strict decoding of JSON-like values into dataclasses, and the way back.

Everything that enters the harness (shape files, leaderboard.yaml, replies of ranks, reports) goes through `decode`, so
that no code inside handles undecoded dicts. Nothing is coerced: "False" is not a bool, True is not an int, an unknown
key is an error. A `DecodeError` says where the value stands (`$.suites.cpu.benchmarks[2].m`) and what to do.

The dataclasses of a union are told apart by a field `type: Literal["..."]` that each of them has.

This is not msgspec or pydantic because the harness also runs with the Python of a GPU machine as it is (`make eval
PYTHON=python3`), where a missing compiled package cannot be installed.
"""

import contextlib
import dataclasses
import difflib
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from harness.core.errors import BadFileError

T = TypeVar("T")
EXPECTED = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bytes: "bytes, which no JSON has",
    type(None): "null",
}


class DecodeError(ValueError):
    """A value does not fit its type. `path` is its place (`$.a[1].b`); `problem` says what is wrong, and what fits."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def below(self, path: str) -> "DecodeError":
        """The error with the path of what the value stands in before its own."""
        return DecodeError(path + self.path, self.problem)


def decode(kind: type[T], value: object, path: str = "$", strict: bool = True) -> T:
    """Returns `value` (as json or yaml loads it) as a `kind`: a dataclass, list, tuple, dict, union or plain type.

    Raises DecodeError for whatever does not fit exactly. A dataclass may refuse a value in `__post_init__` with
    a ValueError of its own, or with a DecodeError whose path is relative (`.m`). Not `strict`, keys that are not known
    are passed over.
    """
    try:
        return cast(T, _decoder(cast(Any, kind), strict)(value))
    except DecodeError as error:
        raise error.below(path) from None


@cache
def prepare(*kinds: Any) -> None:
    """Finds now what `decode` and `encode` have to know of these types and of those within them. Otherwise they find it
    at the first value: in each process again, of many that are forked from one."""
    todo, seen = [*kinds], set[Any]()
    for kind in kinds:
        _decoder(kind, True)
    while todo:
        if (kind := todo.pop()) in seen:
            continue
        seen.add(kind)
        if dataclasses.is_dataclass(kind):
            _fields(cast(Any, kind), True)
            _fields_of(cast(Any, kind))
            todo += get_type_hints(kind).values()
        elif get_origin(kind) is not Literal:
            todo += (one for one in get_args(kind) if one is not Ellipsis)


@contextlib.contextmanager
def as_bad_file(where: object) -> Iterator[None]:
    """Raises BadFileError in place of a DecodeError of the block, with the file's name before its place."""
    try:
        yield
    except DecodeError as error:
        raise BadFileError(f"{where}: {error}") from None


def encode(value: object) -> Any:
    """The inverse of `decode`: dataclasses become dicts, tuples lists, paths texts."""
    if type(value) in EXPECTED:
        return value
    if (fields := _fields_of(cast(Any, type(value)))) is not None:
        return {name: encode(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def part(record: object, kind: type[T], /, **more: Any) -> T:
    """A `kind` of the fields that another record has too; `more` are others, or other values."""
    names = _fields_of(cast(Any, kind)) or ()
    return kind(**{name: getattr(record, name) for name in names if hasattr(record, name)} | more)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` if a known word is similar, or else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


# What decodes a type is made once, since ranks exchange thousands of messages. It raises DecodeErrors whose path begins
# at the value; whoever called it knows the place, and puts it before that.
Decoder = Callable[[object], object]


@cache
def _decoder(kind: Any, strict: bool) -> Decoder:
    origin, args = get_origin(kind), get_args(kind)
    of = partial(_decoder, strict=strict)
    if kind in EXPECTED:
        return partial(_plain, kind)
    if kind is Any:
        return lambda value: value
    if kind is Path:
        return lambda value: Path(cast(str, _plain(str, value)))
    if dataclasses.is_dataclass(kind):
        return partial(_dataclass, kind, strict)
    if origin is Literal:
        return partial(_literal, args, {type(arg) for arg in args})
    if origin in (Union, types.UnionType):
        return _union(args, of)
    if origin is tuple and args[-1] is not Ellipsis:
        return partial(_fixed, list(map(of, args)))
    if origin in (list, tuple):
        item = of(args[0])
        return lambda value: origin(_each(zip(repeat(item), _list(value))))
    if origin is dict:
        item = of(args[1])
        return lambda value: _values(_mapping(value), lambda _: item)
    return partial(_unknown, kind)


def _unknown(kind: Any, value: object) -> NoReturn:
    raise TypeError(f"decode does not know the type {kind!r}")


def _literal(known: tuple[object, ...], kinds: set[type], value: object) -> object:
    if value in known and type(value) in kinds:
        return value
    raise DecodeError("", f"expected one of {', '.join(map(repr, known))}, found {_shown(value)}")


def _fixed(decoders: list[Decoder], value: object) -> object:
    found = _list(value)
    if len(found) != len(decoders):
        raise DecodeError("", f"expected {len(decoders)} items, found {len(found)}")
    return tuple(_each(zip(decoders, found, strict=True)))


def _each(items: Iterable[tuple[Decoder, object]]) -> list[object]:
    decoded: list[object] = []
    try:
        for decoder, item in items:
            decoded.append(decoder(item))
    except DecodeError as error:
        raise error.below(f"[{len(decoded)}]") from None
    return decoded


def _values(found: Mapping[str, object], decoder_of: Callable[[str], Decoder]) -> dict[str, object]:
    decoded = {}
    key = ""
    try:
        for key, item in found.items():
            decoded[key] = decoder_of(key)(item)
    except DecodeError as error:
        raise error.below(f".{key}") from None
    return decoded


def _plain(kind: type, value: object) -> object:
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is not kind:
        hint = ""
        if kind is bool and isinstance(value, str):
            hint = "; write it without quotes, as true or false"
        if kind is float and isinstance(value, str) and re.fullmatch(r"[+-]?\d+[eE][+-]?\d+", value):
            hint = "; YAML wants a point and a sign in such a number, as 1.0e-6"
        raise DecodeError("", f"expected {EXPECTED[kind]}, found {_shown(value)}{hint}")
    if kind is float and not math.isfinite(cast(float, value)):
        raise DecodeError("", f"expected a finite number, found {value}")
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise DecodeError("", f"expected a list, found {_shown(value)}")
    return value


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise DecodeError("", f"expected a mapping, found {_shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise DecodeError("", f"expected keys that are texts, found {_shown(key)}")
    return value


def _dataclass(kind: Any, strict: bool, value: object) -> object:
    found = _mapping(value)
    fields, required = _fields(kind, strict)
    if not strict:
        found = {key: item for key, item in found.items() if key in fields}
    for key in found:
        if key not in fields:
            raise DecodeError(f".{key}", f"unknown key{did_you_mean(key, fields)} (known: {', '.join(fields)})")
    for name in required:
        if name not in found:
            raise DecodeError("", f"the key '{name}' is missing")
    values = _values(found, fields.__getitem__)
    try:
        return kind(**values)
    except DecodeError:
        raise
    except ValueError as error:
        raise DecodeError("", str(error)) from None


@cache
def _fields(kind: Any, strict: bool) -> tuple[dict[str, Decoder], list[str]]:
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    required = [field.name for field in fields if field.default is missing and field.default_factory is missing]
    return {field.name: _decoder(hints[field.name], strict) for field in fields}, required


@cache
def _fields_of(kind: type) -> list[str] | None:
    """The names of a dataclass's fields; None of another type."""
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else None


def _union(args: tuple[Any, ...], of: Callable[[Any], Decoder]) -> Decoder:
    kinds = tuple(kind for kind in args if kind is not type(None))
    if len(kinds) == 1:
        return partial(_optional, of(kinds[0]))
    records: list[Any] = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    tagged = {get_args(get_type_hints(kind)["type"])[0]: of(kind) for kind in records}
    plain = {kind: of(kind) for kind in kinds if kind in EXPECTED}
    of_list = next((of(kind) for kind in kinds if get_origin(kind) is tuple), None)

    def one_of(value: object) -> object:
        if tagged and isinstance(value, Mapping):
            tag = value.get("type")
            if not isinstance(tag, str) or tag not in tagged:
                known = ", ".join(map(repr, tagged))
                raise DecodeError(".type", f"expected one of {known}, found {_shown(tag)}")
            return tagged[tag](value)
        if (decoder := plain.get(type(value))) is not None:
            return decoder(value)
        if of_list is not None and isinstance(value, list | tuple):
            return of_list(value)
        if float in plain and type(value) is int:
            return plain[float](value)
        raise DecodeError("", f"expected {' or '.join(map(_named, kinds))}, found {_shown(value)}")

    return partial(_optional, one_of) if len(kinds) < len(args) else one_of


def _optional(decoder: Decoder, value: object) -> object:
    return None if value is None else decoder(value)


def _named(kind: Any) -> str:
    return "a list" if get_origin(kind) is tuple else EXPECTED.get(kind, str(kind))


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
