"""The channel between parent and ranks: whatever a rank sends is a reply, or is reported."""

import contextlib
import itertools
import json
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.decode import encode
from harness.ranks import wire
from harness.ranks.channel import Channel, MessageParser, ProtocolError, frame
from harness.ranks.wire import Called, CallSample, Failed, MakeInputs

REPLIES = [
    wire.Done(),
    Failed(message="no", traceback="Traceback ..."),
    Called(samples=(CallSample(start_ns=1, end_ns=2, device_us=None, output=None),)),
]


@given(cuts=st.lists(st.integers(0, 400), max_size=6))
def test_replies_arrive_whole_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = b"".join(map(frame, REPLIES))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    parser = MessageParser()
    received = [reply for start, end in itertools.pairwise(edges) for reply in parser.feed(stream[start:end])]
    assert received == REPLIES


@given(data=st.binary(max_size=300))
def test_any_bytes_are_replies_or_a_protocol_error(data: bytes) -> None:
    """Also behind a true length, so that the JSON is reached."""
    for stream in (data, struct.pack(">I", len(data)) + data):
        with contextlib.suppress(ProtocolError):
            MessageParser().feed(stream)


@pytest.mark.parametrize(
    "body",
    [
        b'{"type": "call", "indices": [0], "epoch": 1, "clock": "wall"}',
        b'{"type": "done", "more": 1}',
        b'{"type": "called", "samples": [{"start_ns": 1.5, "end_ns": 2, "device_us": null, "output": null}]}',
        b'{"type": "called", "samples": [{"start_ns": 1, "end_ns": 2, "device_us": NaN, "output": null}]}',
        b'{"type": "memory_told", "peak_bytes": 1%s}' % (b"0" * 400),  # no float is as large
        b'{"type": "memory_told", "peak_bytes": 1, "call_bytes": -1}',
        b'{"type": "stepped", "epoch": 1, "host_us": 0.0, "output": %s}' % json.dumps(encode(wire.NO_OUTPUT)).encode(),
        b"[" * 100_000,
        b"1" * 5000,
        b"null",
    ],
)
def test_what_is_no_reply_is_a_protocol_error(body: bytes) -> None:
    """A command of ours sent back, keys that are not ours, half nanoseconds, endless nesting."""
    with pytest.raises(ProtocolError):
        MessageParser().feed(struct.pack(">I", len(body)) + body)


def test_a_frame_that_claims_gigabytes_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolError, match="a frame of 4000000000 bytes"):
        MessageParser().feed(struct.pack(">I", 4_000_000_000))


def test_a_command_comes_back_as_it_was_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = MakeInputs(params={"m": 64, "has_bias": True}, inputs=(wire.InputSpec(seed=1, hardened=True),))
        ours.sendall(frame(sent))
        assert Channel(theirs).receive(wire.Command) == sent
        ours.close()
        with pytest.raises(EOFError):
            Channel(theirs).receive(wire.Command)


def test_a_frame_is_json() -> None:
    assert json.loads(frame(wire.Done())[4:]) == {"type": "done"}
