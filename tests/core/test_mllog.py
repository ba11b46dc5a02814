"""MLPerf's log lines and what is computed from them."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import mllog
from harness.core.decode import DecodeError
from harness.core.mllog import LogEvent, Writer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
GOOD = '{"namespace": "", "time_ms": 5, "event_type": "POINT_IN_TIME", "key": "seed", "value": 7, "metadata": {}}'


@given(
    st.builds(
        LogEvent,
        time_ms=st.integers(0, 10**13),
        event_type=st.sampled_from(["POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"]),
        key=st.text(),
        value=JSON,
        metadata=st.dictionaries(st.text(), JSON, max_size=3),
        namespace=st.text(),
    )
)
def test_what_is_written_reads_back_the_same(event: LogEvent) -> None:
    assert mllog.parse(f"some other output\n0: {mllog.line(event)}\n") == [event]


def test_the_writer_names_the_place_that_logged_and_flushes_each_line() -> None:
    file, times = io.StringIO(), iter([100, 350])
    log = Writer(file, lambda: next(times))
    log.start("run_start")
    log.end("run_stop", samples_count=3072, status="success")
    first, last = mllog.parse(file.getvalue())
    assert (first.event_type, first.key, first.time_ms) == ("INTERVAL_START", "run_start", 100)
    assert (last.event_type, last.key, last.time_ms) == ("INTERVAL_END", "run_stop", 350)
    assert last.metadata["file"] == "tests/core/test_mllog.py"
    assert last.metadata["lineno"] == first.metadata["lineno"] + 1
    assert (last.metadata["samples_count"], last.metadata["status"]) == (3072, "success")
    with pytest.raises(ValueError, match="'weights' has a value that is not JSON"):
        Writer(file, lambda: 0).point("weights", {1, 2})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD[:40], "not JSON, as if cut off"),
        (GOOD + " x", "not JSON"),
        ("[1]", "expected a mapping"),
        (GOOD.replace('"namespace": "", ', ""), "the key 'namespace' is missing"),
        (GOOD[:-1] + ', "rank": 0}', "$.rank: unknown key"),
        (GOOD.replace("POINT_IN_TIME", "POINT"), "$.event_type: expected one of 'POINT_IN_TIME'"),
        (GOOD.replace('"time_ms": 5', '"time_ms": 5.0'), "time_ms: expected a whole number"),
        (GOOD.replace('"time_ms": 5', '"time_ms": 5' + "0" * 40), "time_ms: expected milliseconds since 1970"),
        (GOOD.replace("{}", "3"), "$.metadata: expected a mapping"),
    ],
)
def test_a_marked_line_that_is_none_is_refused_with_its_number(content: str, message: str) -> None:
    json.loads(GOOD)
    with pytest.raises(DecodeError, match=f"^line 2.*{re.escape(message)}"):
        mllog.parse(f":::MLLOG {GOOD}\n:::MLLOG {content}\n")
