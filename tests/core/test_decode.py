"""The door of the harness: what fits is returned unchanged, everything else is a DecodeError that says where."""

import dataclasses
import json
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core import decode as decoding
from harness.core.decode import DecodeError, decode, did_you_mean, encode
from harness.core.machine_records import Peaks
from harness.core.records import (
    Bound,
    Case,
    CaseFigures,
    CaseResult,
    Estimate,
    EvalReport,
    Measured,
    Metric,
    Outcome,
    Passed,
    Profile,
    Score,
    Series,
)
from harness.core.summary import Summary

RECORDS = [Case, Peaks, CaseResult, EvalReport]
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=8),
    type(None): st.none(),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


# What a Series refuses of its fields together: the place is the series.
OF_SEVERAL_FIELDS = ("expected as many samples of either side", "expected samples or a summary")
above_0 = st.floats(1e-9, 1e9)


@st.composite
def series(draw: st.DrawFn) -> Series:
    """Either side's samples in pairs, or a summary."""
    pairs = draw(st.lists(st.tuples(above_0, above_0), max_size=3))
    own, baseline = zip(*pairs, strict=True) if pairs else ((), ())
    summary = None if pairs else Summary(runs=3, mean=draw(above_0), std=0.5, err=0.1, best=1.0, worst=2.0)
    metric = draw(values_of(Metric))
    return Series(metric=metric, own=own, baseline=baseline, block=draw(st.integers(1, 9)), summary=summary)


# Records that refuse some values of their fields' types.
CHECKED: dict[Any, Callable[[], st.SearchStrategy[Any]]] = {
    Bound: lambda: st.builds(Bound, value=above_0, by=st.text(max_size=8)),
    Estimate: lambda: st.builds(
        Estimate, value=above_0, ci=st.none() | st.tuples(above_0, above_0), why=st.text(max_size=8)
    ),
    Score: lambda: st.builds(Score, value=above_0, unit=st.text(max_size=8), better=st.sampled_from(["less", "more"])),
    CaseFigures: lambda: st.builds(
        CaseFigures,
        metric=values_of(Metric),
        value=above_0,
        baseline=st.none() | above_0,
        spread=st.none() | above_0,
        ratio=st.none() | values_of(Estimate),
        fraction=st.none() | values_of(Estimate),
    ),
    Summary: lambda: st.builds(Summary, runs=st.integers(), mean=above_0, std=above_0, err=above_0),
    # A vendor's report files go to a folder, not into JSON.
    Profile: lambda: st.builds(
        Profile,
        ranks=values_of(get_type_hints(Profile)["ranks"]),
        trace_json=st.text(max_size=8),
        trace=st.none() | st.text(max_size=8),
        files=st.just({}),
    ),
    Series: series,
    Measured: lambda: st.builds(Measured, series=st.lists(series(), min_size=1, max_size=2).map(tuple)),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Every value that the type `kind` can have, of those types that decode knows."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in CHECKED:
        return CHECKED[kind]()
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return st.builds(
            kind, **{name: values_of(hint) for name, hint in get_type_hints(kind).items() if in_init(kind, name)}
        )
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values_of(arg) for arg in args))
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    assert origin is dict, kind
    return st.dictionaries(st.text(max_size=5), values_of(args[1]), max_size=2)


def in_init(kind: Any, name: str) -> bool:
    return name in {field.name for field in dataclasses.fields(kind)}


def refusal(kind: type, value: object) -> DecodeError | None:
    """The DecodeError that `value` meets; any other exception passes through and fails the test."""
    try:
        assert isinstance(decode(kind, value), kind)
    except DecodeError as error:
        return error
    return None


@pytest.mark.parametrize("kind", RECORDS)
@settings(max_examples=30)
@given(data=st.data())
def test_every_record_comes_back_from_json_as_it_was(kind: type, data: st.DataObject) -> None:
    """decode(encode(x)) == x, through the text of a file."""
    record = data.draw(values_of(kind))
    assert decode(kind, json.loads(json.dumps(encode(record)))) == record


@pytest.mark.parametrize("kind", RECORDS)
@settings(max_examples=50)
@given(value=JSON)
def test_arbitrary_json_is_decoded_or_refused_and_nothing_else(kind: type, value: object) -> None:
    """No other exception leaves decode."""
    refused = refusal(kind, value)
    assert refused is None or (refused.path.startswith("$") and refused.problem)


@settings(max_examples=100)
@given(data=st.data(), wrong=JSON)
def test_a_record_with_one_altered_value_is_decoded_or_refused_at_that_place(
    data: st.DataObject, wrong: object
) -> None:
    """The error's path leads to the altered value, or into it."""
    found = encode(data.draw(values_of(CaseResult)))
    node, path = found, "$"
    while True:
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        path += f".{key}" if isinstance(node, dict) else f"[{key}]"
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    tag = isinstance(node, dict) and key == "type"
    node[key] = wrong
    refused = refusal(CaseResult, found)
    assert refused is None or refused.path.startswith(path) or tag or refused.problem.startswith(OF_SEVERAL_FIELDS)


@dataclass(frozen=True, kw_only=True)
class Inner:
    m: int
    wanted: bool = False

    def __post_init__(self) -> None:
        if self.m < 0:
            raise DecodeError(".m", "expected 0 or more")
        if self.m > 99:
            raise ValueError("too much of it")


@dataclass(frozen=True, kw_only=True)
class Left:
    type: Literal["left"] = "left"


@dataclass(frozen=True, kw_only=True)
class Right:
    n: int
    type: Literal["right"] = "right"


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    many: tuple[Inner, ...] = ()
    names: list[str] = dataclasses.field(default_factory=list)
    pair: tuple[int, str] = (0, "")
    rates: dict[str, float] = dataclasses.field(default_factory=dict)
    side: Left | Right | None = None
    level: Literal[1, 2] = 1
    mixed: int | bool | str = 0
    limit: float | None = None


GOOD: dict[str, Any] = {"inner": {"m": 1}}


def test_of_what_was_prepared_nothing_is_left_to_find_out() -> None:
    """So that no fork has to."""
    decoding.prepare(EvalReport)
    found = [one.cache_info().misses for one in (decoding._fields, decoding._fields_of)]
    for kind in (EvalReport, CaseResult, Measured, Series, Summary):
        decoding._fields(kind, True)
        decoding._fields_of(kind)
    assert found == [one.cache_info().misses for one in (decoding._fields, decoding._fields_of)]


def test_what_is_left_out_gets_its_default() -> None:
    """And what is given keeps its value, lists becoming tuples where the type says so."""
    assert decode(Outer, GOOD) == Outer(inner=Inner(m=1))
    found = decode(
        Outer,
        GOOD | {"many": [{"m": 2}], "pair": [3, "c"], "side": {"type": "right", "n": 4}, "mixed": True, "limit": 2},
    )
    assert (found.many, found.pair, found.side) == ((Inner(m=2),), (3, "c"), Right(n=4))
    assert found.mixed is True
    assert type(found.limit) is float


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (None, "$", "expected a mapping, found null"),
        ([], "$", "expected a mapping, found a list"),
        ({}, "$", "the key 'inner' is missing"),
        ({1: 2}, "$", "expected keys that are texts, found 1"),
        ({"inner": {}}, "$.inner", "the key 'm' is missing"),
        ({"inner": {"m": True}}, "$.inner.m", "expected a whole number, found True"),
        ({"inner": {"m": 1.0}}, "$.inner.m", "expected a whole number, found 1.0"),
        ({"inner": {"m": "1"}}, "$.inner.m", "expected a whole number, found '1'"),
        ({"inner": {"m": -1}}, "$.inner.m", "expected 0 or more"),
        ({"inner": {"m": 100}}, "$.inner", "too much of it"),
        ({"inner": {"m": 1, "wantd": True}}, "$.inner.wantd", "unknown key; did you mean 'wanted'? (known: m, wanted)"),
        (
            {"inner": {"m": 1, "wanted": "False"}},
            "$.inner.wanted",
            "expected true or false, found 'False'; write it without quotes, as true or false",
        ),
        ({"inner": {"m": 1, "wanted": 0}}, "$.inner.wanted", "expected true or false, found 0"),
        (GOOD | {"many": {"m": 1}}, "$.many", "expected a list, found a mapping"),
        (GOOD | {"many": [{"m": 1}, 7]}, "$.many[1]", "expected a mapping, found 7"),
        (GOOD | {"many": [{"m": 1}, {"m": -1}]}, "$.many[1].m", "expected 0 or more"),
        (GOOD | {"names": ["a", 1]}, "$.names[1]", "expected a text, found 1"),
        (GOOD | {"names": ["a", {}]}, "$.names[1]", "expected a text, found a mapping"),
        (GOOD | {"pair": [1]}, "$.pair", "expected 2 items, found 1"),
        (GOOD | {"pair": [1, 2]}, "$.pair[1]", "expected a text, found 2"),
        (GOOD | {"rates": {"a": float("nan")}}, "$.rates.a", "expected a finite number, found nan"),
        (GOOD | {"rates": {"a": float("-inf")}}, "$.rates.a", "expected a finite number, found -inf"),
        (GOOD | {"rates": {"a": None}}, "$.rates.a", "expected a number, found null"),
        (GOOD | {"rates": {"a": True}}, "$.rates.a", "expected a number, found True"),
        (GOOD | {"side": {}}, "$.side.type", "expected one of 'left', 'right', found null"),
        (GOOD | {"side": {"type": "up"}}, "$.side.type", "expected one of 'left', 'right', found 'up'"),
        (GOOD | {"side": {"type": ["left"]}}, "$.side.type", "expected one of 'left', 'right', found a list"),
        (GOOD | {"side": {"type": "right"}}, "$.side", "the key 'n' is missing"),
        (GOOD | {"level": 3}, "$.level", "expected one of 1, 2, found 3"),
        (GOOD | {"level": True}, "$.level", "expected one of 1, 2, found True"),
        (GOOD | {"mixed": None}, "$.mixed", "expected a whole number or true or false or a text, found null"),
        (GOOD | {"limit": "x" * 99}, "$.limit", "expected a number, found '" + "x" * 56 + "..."),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place_and_what_would_fit(value: object, path: str, problem: str) -> None:
    """Nothing is coerced."""
    with pytest.raises(DecodeError) as caught:
        decode(Outer, value)
    assert (caught.value.path, caught.value.problem) == (path, problem)
    assert str(caught.value) == f"{path}: {problem}"


def test_alternatives_are_told_apart_by_their_type_field() -> None:
    """Each outcome has its own word."""
    tags = [get_args(get_type_hints(kind)["type"])[0] for kind in get_args(Outcome)]
    assert len(set(tags)) == len(tags)
    series = Series(metric=Metric(name="wall", unit="us"), own=(1.0,), baseline=(2.0,))
    measured = Measured(series=(series,))
    assert decode(Outcome, encode(measured)) == measured  # type: ignore[arg-type]
    assert decode(Outcome, {"type": "passed"}) == Passed()  # type: ignore[arg-type]


def test_a_type_that_decode_does_not_know_is_our_mistake() -> None:
    """TypeError, not an error in the file."""
    with pytest.raises(TypeError, match="decode does not know the type"):
        decode(set, [])


def test_only_near_words_are_suggested() -> None:
    """A far word gets no suggestion at all."""
    assert did_you_mean("a2b", ["a2a", "gemm_rs"]) == "; did you mean 'a2a'?"
    assert did_you_mean("zzz", ["a2a", "gemm_rs"]) == ""
