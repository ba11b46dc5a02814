"""Strict decoding of JSON-like values into dataclasses, and the way back.

Everything that enters the harness (shape files, leaderboard.yaml, replies of ranks, reports) goes through `decode`, so
that no code inside handles undecoded dicts. Nothing is coerced: "False" is not a bool, True is not an int, an unknown
key is an error. A `DecodeError` says where the value stands (`$.suites.cpu.benchmarks[2].m`) and what to do.

The dataclasses of a union are told apart by a field `type: Literal["..."]` that each of them has.

This is not msgspec or pydantic because the harness also runs with the Python of a GPU machine as it is (`make eval
PYTHON=python3`), where a missing compiled package cannot be installed.
"""

import dataclasses
import difflib
import math
import re
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "null"}


class DecodeError(ValueError):
    """A value does not fit its type. `path` is its place (`$.a[1].b`); `problem` says what is wrong, and what fits."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def decode(kind: type[T], value: object, path: str = "$") -> T:
    """Returns `value` (as json or yaml loads it) as a `kind`: a dataclass, list, tuple, dict, union or plain type.

    Raises DecodeError for whatever does not fit exactly. A dataclass may refuse a value in `__post_init__` with
    a ValueError of its own, or with a DecodeError whose path is relative (`.m`).
    """
    return cast(T, _decode(kind, value, path))


def encode(value: object) -> Any:
    """The inverse of `decode`: dataclasses become dicts, tuples lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` if a known word is similar, or else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _decode(kind: Any, value: object, path: str) -> object:
    origin, args = get_origin(kind), get_args(kind)
    if kind in EXPECTED:
        return _plain(kind, value, path)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, path)
    if origin is Literal:
        if value in args and type(value) in {type(arg) for arg in args}:
            return value
        raise DecodeError(path, f"expected one of {', '.join(map(repr, args))}, found {_shown(value)}")
    if origin in (Union, types.UnionType):
        return _union(args, value, path)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            raise DecodeError(path, f"expected a list, found {_shown(value)}")
        if origin is tuple and args[-1] is not Ellipsis:
            if len(value) != len(args):
                raise DecodeError(path, f"expected {len(args)} items, found {len(value)}")
            return tuple(
                _decode(arg, item, f"{path}[{i}]") for i, (arg, item) in enumerate(zip(args, value, strict=True))
            )
        return origin(_decode(args[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        return {key: _decode(args[1], item, f"{path}.{key}") for key, item in _mapping(value, path).items()}
    raise TypeError(f"decode does not know the type {kind!r}")


def _plain(kind: type, value: object, path: str) -> object:
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is not kind:
        hint = ""
        if kind is bool and isinstance(value, str):
            hint = "; write it without quotes, as true or false"
        if kind is float and isinstance(value, str) and re.fullmatch(r"[+-]?\d+[eE][+-]?\d+", value):
            hint = "; YAML wants a point and a sign in such a number, as 1.0e-6"
        raise DecodeError(path, f"expected {EXPECTED[kind]}, found {_shown(value)}{hint}")
    if kind is float and not math.isfinite(cast(float, value)):
        raise DecodeError(path, f"expected a finite number, found {value}")
    return value


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise DecodeError(path, f"expected a mapping, found {_shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise DecodeError(path, f"expected keys that are texts, found {_shown(key)}")
    return value


def _dataclass(kind: Any, value: object, path: str) -> object:
    found = _mapping(value, path)
    hints: dict[str, Any] = _hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in found:
        if key not in fields:
            raise DecodeError(f"{path}.{key}", f"unknown key{did_you_mean(key, fields)} (known: {', '.join(fields)})")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in found:
            raise DecodeError(path, f"the key '{name}' is missing")
    values = {key: _decode(hints[key], item, f"{path}.{key}") for key, item in found.items()}
    try:
        return kind(**values)
    except DecodeError as error:
        raise DecodeError(path + error.path, error.problem) from None
    except ValueError as error:
        raise DecodeError(path, str(error)) from None


def _union(kinds: tuple[Any, ...], value: object, path: str) -> object:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    if len(kinds) == 1:
        return _decode(kinds[0], value, path)
    records: list[Any] = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    tagged = {get_args(_hints(kind)["type"])[0]: kind for kind in records}
    if tagged and isinstance(value, Mapping):
        tag = value.get("type")
        if not isinstance(tag, str) or tag not in tagged:
            raise DecodeError(f"{path}.type", f"expected one of {', '.join(map(repr, tagged))}, found {_shown(tag)}")
        return _decode(tagged[tag], value, path)
    if type(value) in kinds:
        return _plain(type(value), value, path)
    lists = [kind for kind in kinds if get_origin(kind) is tuple]
    if lists and isinstance(value, list | tuple):
        return _decode(lists[0], value, path)
    if float in kinds and type(value) is int:
        return _plain(float, value, path)
    raise DecodeError(path, f"expected {' or '.join(_named(kind) for kind in kinds)}, found {_shown(value)}")


def _named(kind: Any) -> str:
    return "a list" if get_origin(kind) is tuple else EXPECTED.get(kind, str(kind))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
