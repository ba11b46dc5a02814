"""Clients that are slow on purpose: half of a request, a body by the byte, an answer that nobody takes, more event
streams than there may be. Each ends at its deadline or makes room, and a client that asks beside them is answered."""

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from serving import BOBS, GEMM, GPU, MINE, SOURCE, Served, served, submit
from waiting import in_time, until

from harness.serve import connections, events
from harness.serve.connections import peer_of

LINES = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = f"POST /submission/{GEMM}/{GPU}/test HTTP/1.1\r\nHost: localhost\r\nX-Popcorn-Cli-Id: eve:1\r\n".encode()
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\ndef custom_kernel(data): ...\r\n--b--'
)
HEAD = POST + b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n" % len(FORM)

WHOLE = re.compile(rb"(?is).*?^content-length: (\d+)\r\n.*?\r\n\r\n(.*)", re.MULTILINE)  # headers, and a body


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("serve")) as found:
        yield found


def seconds(monkeypatch: pytest.MonkeyPatch, **states: float) -> None:
    monkeypatch.setattr(connections, "SECONDS", connections.SECONDS | states)


def connect(running: Served, source: str = "127.0.0.1") -> socket.socket:
    port = int(running.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))


def end_of(connection: socket.socket) -> bytes:
    """All that came until the server closed the connection."""
    found = b""
    try:
        while data := connection.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass
    return found


def answer_of(connection: socket.socket) -> bytes:
    """The whole of one answer, whose headers and body may come apart; the connection stays open."""
    found = b""
    while (whole := WHOLE.match(found)) is None or len(whole[2]) < int(whole[1]):
        data = connection.recv(4096)
        assert data, found
        found += data
    return found


def status_of(answer: bytes) -> int:
    """The status that an answer begins with; 0 for none."""
    return int(answer.split()[1]) if answer else 0


@pytest.mark.parametrize(
    ("begun", "status"),
    [
        pytest.param(b"", 0, id="says nothing"),
        pytest.param(LINES, 408, id="half of its headers"),
        pytest.param(HEAD + FORM[:-9], 408, id="half of its body"),
        pytest.param(LINES + b"Content-Length: 9\r\n\r\n", 200, id="half of a body that nobody asked for"),
        pytest.param(LINES + b"\r\n", 200, id="no second request"),
    ],
)
def test_who_does_not_go_on_is_ended(
    running: Served, begun: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(limit_s: float) -> None:
        seconds(monkeypatch, headers=limit_s, body=limit_s, idle=limit_s)
        with connect(running) as connection:
            connection.sendall(begun)
            assert status_of(end_of(connection)) == status

    in_time(check, 0.3, 5.0)


def ends(connection: socket.socket, data: bytes) -> bool:
    """Whether the server ends the connection while it is sent `data` again and again."""
    connection.settimeout(0.1)
    for _ in range(1000):
        try:
            connection.sendall(data)
        except TimeoutError:  # it reads no more, and has not ended the connection
            continue
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("begun", [LINES + b"X-Slow: ", HEAD.replace(b"%d" % len(FORM), b"90000") + FORM[:-9]])
def test_a_byte_now_and_then_gains_no_time(running: Served, begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds(monkeypatch, headers=0.5, body=0.5)
    with connect(running) as connection:
        connection.sendall(begun)
        assert ends(connection, b"a")


def test_bytes_after_the_answer_gain_no_time(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a body whose request was refused. uvicorn's own time for idle connections begins again each time."""
    seconds(monkeypatch, idle=1.5)
    with connect(running) as connection:
        connection.sendall(b"POST /health HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 90000\r\n\r\n")
        assert status_of(connection.recv(4096)) == 421
        assert ends(connection, b"a")


def test_who_takes_no_answer_is_ended(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds(monkeypatch, take=0.5, idle=0.5)
    with connect(running) as connection, running.client() as client:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall((LINES.replace(b"/health", b"/openapi.json") + b"\r\n") * 1000)
        assert ends(connection, b"\r\n")
        assert client.get("/health").status_code == 200


def test_an_honest_client_may_take_its_time(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds(monkeypatch, headers=30.0, body=30.0)
    with connect(running) as connection:
        for part in (HEAD[:60], HEAD[60:], FORM[:20], FORM[20:]):
            connection.sendall(part)
            time.sleep(0.2)
        assert status_of(connection.recv(4096)) == 202


def test_half_requests_make_room_for_whole_ones(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """More slow connections than there may be: the oldest of them get 503, the client that asks is answered."""
    monkeypatch.setattr(connections, "CONNECTIONS", 20)
    seconds(monkeypatch, headers=60.0, body=60.0)
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(running)) for _ in range(60)]
        for connection in slow:
            connection.sendall(LINES) if slow.index(connection) % 2 else connection.sendall(HEAD)
            with running.client() as client:  # a connection of its own each time
                assert client.get("/health").status_code == 200
        seconds(monkeypatch, headers=0.2, body=0.2)
        ended = Counter(status_of(end_of(one)) for one in slow[:20])
        assert set(ended) <= {0, 503}, "nothing was asked, or half of a request was"


def test_a_peer_with_many_connections_costs_no_other_peer(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "OF_PEER", 10)
    seconds(monkeypatch, headers=60.0)
    with ExitStack() as stack:
        first = stack.enter_context(connect(running))
        first.sendall(LINES)
        crowd = [stack.enter_context(connect(running, "127.0.0.2")) for _ in range(40)]
        for connection in crowd:
            connection.sendall(LINES)
        assert sum(status_of(end_of(one)) in (0, 503) for one in crowd[:30]) == 30
        first.sendall(b"Connection: close\r\n\r\n")
        assert status_of(end_of(first)) == 200
        crowd[-1].sendall(b"Connection: close\r\n\r\n")
        assert status_of(end_of(crowd[-1])) == 200, "the newest of that peer"


def test_no_more_streams_open_than_may_be_however_many_ask_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STREAMS", 5)
    statuses: list[int] = []

    async def ask(url: str, number: int) -> None:
        headers, file = {"X-Popcorn-Cli-Id": f"one{number}:x"}, {"file": ("a.py", (SOURCE + "# waits\n").encode())}
        async with (
            httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client,
            client.stream("POST", f"/{GEMM}/{GPU}/test", files=file) as answer,
        ):
            statuses.append(answer.status_code)
            if len(statuses) == 20:
                (tmp_path / "go").touch()
            async for _ in answer.aiter_bytes():
                pass

    async def all_at_once(url: str) -> None:
        await asyncio.gather(*(ask(url, number) for number in range(20)))

    with served(tmp_path) as found:
        asyncio.run(all_at_once(found.url))
        assert Counter(statuses) == {200: 5, 503: 15}
        with found.client(MINE) as client:
            assert client.get("/live/queue").json()["waiting_count"] == 0, "what was refused is not queued either"
        until(lambda: not found.service.streams)


def test_a_refused_submission_leaves_no_stream_open(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAMS", 2)
    with running.client(BOBS) as client:
        for _ in range(5):
            assert client.post(f"/{GEMM}/{GPU}/test", files={"file": ("a.py", b"\xff")}).status_code == 400
        assert not running.service.streams
        submit(client)


def test_streams_of_one_peer_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAMS_OF_PEER", 1)
    file = {"file": ("a.py", (SOURCE + "# sleeps\n").encode())}
    path = f"/{GEMM}/{GPU}/test"
    with served(tmp_path) as found, found.client(MINE) as client, found.client(BOBS) as other:
        with client.stream("POST", path, files=file) as first:
            held_open = first.iter_text()
            assert next(held_open).startswith("event: status")
            assert other.post(path, files=file).status_code == 503
            elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
            with (
                httpx.Client(base_url=found.url, headers=BOBS, transport=elsewhere, timeout=60) as third,
                third.stream("POST", path, files=file) as second,
            ):
                assert second.status_code == 200
        for number, owner in ((1, client), (2, other)):
            owner.delete(f"/user/submissions/{number}")


def test_which_addresses_count_as_one_peer() -> None:
    assert peer_of("10.0.0.7") == peer_of("::ffff:10.0.0.7") != peer_of("10.0.0.8")
    assert peer_of("2001:db8:0:1::7") == peer_of("2001:db8:0:1:ff::8") != peer_of("2001:db8:0:2::7")
    assert peer_of("fe80::1%eth0") == peer_of("fe80::2")
    assert peer_of("testclient") == "testclient"


def test_half_requests_do_not_delay_the_servers_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By as long as uvicorn waits for its connections, 5 s."""

    def check(limit_s: float) -> None:
        with ExitStack() as stack:
            with served(tmp_path) as found:
                slow = [stack.enter_context(connect(found)) for _ in range(3)]
                for connection, begun in zip(slow, (LINES, HEAD + FORM[:-9], LINES + b"\r\n"), strict=True):
                    connection.sendall(begun)
                assert status_of(answer_of(slow[2])) == 200
                began_s = time.monotonic()
            assert time.monotonic() - began_s < limit_s
            assert [status_of(end_of(one)) for one in slow] == [503, 503, 0]

    in_time(check, *[4.0] * 4)
    assert "Traceback" not in capfd.readouterr().err
