"""popcorn-cli's API on this machine: what clients are told, what is whose, what is refused.

Evaluations are a script's (serving.py) but for one, which is real.
"""

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import preloaded
import pytest
from factories import WRONG_OUTCOME, report, results
from places import SINGLE
from popcorn_client import PopcornClient, Refused
from serving import BOBS, GEMM, GPU, MINE, SOURCE, Served, outcome, served, submit
from waiting import until

from harness.board import report_json
from harness.cli import main
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import UsageError
from harness.core.records import Passed, Profile, RankProfile
from harness.kinds.external import programs
from harness.kinds.settings import Asked
from harness.problems.shape_file import find, problem_names
from harness.problems.submission import MAX_BYTES
from harness.serve import guard, server
from harness.serve.guard import MAX_BODY_BYTES, is_loopback
from harness.serve.offers import Offer, ServeOptions, eval_command, leaderboards, offered
from harness.serve.store import QueueLimits
from harness.serve.worker import Files

CRASH = "ended with exit code 7 and without a result: out of luck"
PATH = f"/submission/{GEMM}/{GPU}/test"
OURS = [find(name, Checkout.here()).leaderboard for name in problem_names(Checkout.here())]
NOT_UTF8 = b"def custom_kernel(data): ...  # \xff\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("serve")) as found:
        yield found


def run(*arguments: str) -> int:
    return main.parse(["serve", *arguments]).carry_out(Checkout.here())


# ---- what popcorn-cli does -------------------------------------------------------------------------------------------


def test_popcorn_cli_registers_and_finds_leaderboards_and_gpus(running: Served) -> None:
    with PopcornClient(running.url) as client:
        assert len(client.register("discord")) == 36
        assert len({client.register("github") for _ in range(3)}) == 3
        with pytest.raises(Refused, match="400: Invalid provider"):
            client.register("nobody")
        names = [name for name, _ in client.leaderboards()]
        assert names == OURS
        assert client.gpus(GEMM) == client.gpus("gemm_rs") == ["CPU", "MI300x8"]
        with pytest.raises(Refused, match="404: Leaderboard `nothing` does not exist"):
            client.gpus("nothing")


def test_popcorn_cli_submits_and_gets_rows_a_score_and_a_report(running: Served) -> None:
    with PopcornClient(running.url, "carol:1") as client:
        rows = client.submit("k.py", SOURCE.encode(), "AMD-gemm-rs", "CPU", "Test")
        assert rows.splitlines()[0] == "pass world_size: 8; m: 64; n: 2880; k: 2880; has_bias: True; seed: 1234"
        score = client.submit("k.py", SOURCE.encode(), GEMM, "CPU", "leaderboard")
        assert score == "Geomean score (public) on CPU: 0.007593335675911113 s"
        assert client.log[-1] == "succeeded"
        report = client.submit("k.py", SOURCE.encode() + b"# a moment\n", GEMM, "MI300x8", "profile")
        assert "**MI300x8 on 2 cores of Example CPU @ 2.00GHz**" in json.loads(report)[0]
        assert "printed by the evaluation" in json.loads(report)[0]
        assert any(message.endswith("test 1/3 m 64 n 2880") for message in client.log)
        assert client.results[0]["system"]["torch"] == "2.13.0"


def test_popcorn_cli_is_told_what_failed(running: Served) -> None:
    with PopcornClient(running.url, "carol:1") as client:
        with pytest.raises(Refused, match=r"^Submission \d+ failed: test 2 of 3 failed: rank 2: tile"):
            client.submit("k.py", SOURCE.encode() + b"# wrong\n", GEMM, "CPU", "test")
        with pytest.raises(Refused, match=r"^Submission \d+ failed: test 2 of 3 failed: rank 2: tile"):
            client.submit("k.py", SOURCE.encode() + b"# wrong\n", GEMM, "CPU", "leaderboard")
        with pytest.raises(Refused, match=r"^Submission \d+ failed: test 2 of 3 failed: rank 2 timed out"):
            client.submit("k.py", SOURCE.encode() + b"# hangs\n", GEMM, "CPU", "test")
        with pytest.raises(Refused, match=f"failed: the evaluation {CRASH}"):
            client.submit("k.py", SOURCE.encode() + b"# crashes\n", GEMM, "CPU", "test")
        with pytest.raises(Refused, match=rf"{CRASH} \(Status Code: 500\)"):
            client.submit("k.py", SOURCE.encode() + b"# crashes\n", GEMM, "CPU", "profile")


def test_popcorn_cli_lists_shows_and_deletes(running: Served) -> None:
    with PopcornClient(running.url, "dora:1") as client:
        assert client.submissions(GEMM) == []
        client.submit("one.py", SOURCE.encode(), GEMM, "CPU", "leaderboard")
        client.submit("two.py", SOURCE.encode(), GEMM, "CPU", "test")
        found = client.submissions(GEMM)
        assert [one["file_name"] for one in found] == ["two.py", "one.py"]
        assert found[1]["runs"][-1] == {"gpu_type": "CPU", "score": 0.007593335675911113}
        assert [one["file_name"] for one in client.submissions(GEMM, limit=1)] == ["two.py"]
        assert client.submissions("amd-all2all") == []
        assert client.show(found[0]["id"])["code"] == SOURCE
        client.delete(found[0]["id"])
        assert [one["file_name"] for one in client.submissions(GEMM)] == ["one.py"]
        with pytest.raises(Refused, match="404: Submission not found"):
            client.delete(found[0]["id"])


def test_what_their_client_has_and_we_have_not_says_so(running: Served) -> None:
    with running.client(MINE) as client:
        assert "no invite codes" in client.post("/user/join", json={"code": "x"}).json()["detail"].lower()
        assert client.post("/admin/export-hf").status_code == 401


def test_a_profile_that_cannot_be_taken_says_what_is_missing(running: Served) -> None:
    """Current clients ask for Nsight Compute's, by --profile and by --mode profile."""
    with PopcornClient(running.url, "carol:1") as client:
        with pytest.raises(Refused) as caught:
            client.profile("k.py", SOURCE.encode(), GEMM, "CPU", benchmark_index="0")
        assert re.fullmatch(
            r"Server returned status 404: Nsight Compute cannot profile `amd-gemm-rs` here: (there is no ncu here "
            r"\(looked in .*\)|.* profiles cuda devices, and this would run on cpu)\. On the server's machine, "
            "`python -m harness eval gemm_rs FILE --mode profile` takes torch's profile.",
            str(caught.value),
        )
        with pytest.raises(Refused, match="404: Leaderboard `nothing` does not exist"):
            client.profile("k.py", SOURCE.encode(), "nothing", "CPU")


@pytest.fixture
def profiling(tmp_path: Path) -> Iterator[Served]:
    """A server on a machine that has ncu; what it leaves is played."""
    with served(tmp_path / "serve") as found:
        known = tuple(replace(one, unprofiled="") for one in found.service.catalogue.leaderboards)
        found.service.catalogue.leaderboards = known
        reports = [tmp_path / "profile-0-rank-0-report.ncu-rep", tmp_path / "profile-0-rank-0-report.csv"]
        for path in reports:
            path.write_bytes(b"counters")
        (case,) = results([], [Passed()])
        rank = RankProfile(rank=0, call_us=5.0, of="device", top=())
        profile = Profile(ranks=(rank,), trace_json="", tool="ncu", reports=tuple(map(str, reports)))
        profiled = replace(case, case=replace(case.case, kind="profile"), profile=profile)
        (found.folder / "profile.json").write_text(json.dumps(report_json.to_json(report((profiled,), mode="profile"))))
        wrong = replace(profiled, outcome=WRONG_OUTCOME, profile=None)
        (found.folder / "wrong.json").write_text(json.dumps(report_json.to_json(report((wrong,), mode="profile"))))
        yield found


def test_popcorn_cli_gets_the_reports_of_nsight_compute(profiling: Served) -> None:
    with PopcornClient(profiling.url, "carol:1") as client:
        names = ["profile-0-rank-0-report.ncu-rep", "ncu-details.csv"]
        assert client.profile("k.py", SOURCE.encode(), GEMM, "CPU") == {"profile.0": names}
        more = {"benchmark_index": "1", "ncu_launch_count": "500"}
        assert client.profile("k.py", SOURCE.encode(), GEMM, "CPU", **more) == {"profile.1": names}
        rows = profiling.service.store.latest(2)
        assert [(row.mode, row.tool, row.benchmark, row.launch_count) for row in rows] == [
            ("profile", "ncu", 1, 500),
            ("profile", "ncu", None, None),
        ]
        command = eval_command(())(rows[0], Files(source=Path("k.py")))
        assert {"--mode=profile", "--tool=ncu", "--benchmark=1", "--launch-count=500"} <= set(command)
        plain = eval_command(())(rows[1], Files(source=Path("k.py")))
        assert not [word for word in plain if "benchmark" in word or "launch" in word]


def test_popcorn_cli_is_told_why_there_is_no_report_of_nsight_compute(profiling: Served) -> None:
    with PopcornClient(profiling.url, "carol:1") as client:
        with pytest.raises(
            Refused, match=r"(?s)profile\.0: Execution failed:\nrank 2: tile.*No NCU report was produced"
        ):
            client.profile("k.py", SOURCE.encode() + b"# wrong\n", GEMM, "CPU")
        with pytest.raises(Refused, match=rf"{CRASH} \(Status Code: 500\)"):
            client.profile("k.py", SOURCE.encode() + b"# crashes\n", GEMM, "CPU")
        with pytest.raises(Refused, match="400: ncu_kernel_name is not taken here"):
            client.profile("k.py", SOURCE.encode(), GEMM, "CPU", ncu_kernel_name="regex:gemm")
        with pytest.raises(Refused, match="400: benchmark_index must be between 0 and 1"):
            client.profile("k.py", SOURCE.encode(), GEMM, "CPU", benchmark_index="3")


def test_the_backlog_of_the_runner_is_told_by_gpu(running: Served) -> None:
    with running.client() as client:
        idle = client.get("/runner_queue/mi300X8").json()
        assert idle == {
            "runner": "Local", "gpu": "MI300x8", "queued_jobs": 0, "running_jobs": 0, "available_runners": 1,
            "status": "available", "error": None,
        }  # fmt: skip
        unknown = client.get("/runner_queue/B200")
        assert (unknown.status_code, "Choose one of: CPU, MI300x8" in unknown.json()["detail"]) == (404, True)


def test_the_ranking_has_each_users_best(running: Served) -> None:
    with running.client({"X-Popcorn-Cli-Id": "erin:1"}) as client:
        for name in ("a.py", "b.py"):
            outcome(client, submit(client, name=name))
        found = client.get(f"/submissions/{GEMM}/{GPU}").json()
        mine = [one for one in found if one["user_name"] == "erin"]
        assert [(one["submission_name"], one["submission_score"]) for one in mine] == [("a.py", 0.007593335675911113)]
        assert [one["rank"] for one in found] == list(range(1, len(found) + 1))
        assert client.get(f"/submission_count/{GEMM}/{GPU}").json() == {"count": len(found)}
        assert client.get(f"/submissions/{GEMM}/{GPU}?limit=1").json() == found[:1]


# ---- who is who ------------------------------------------------------------------------------------------------------


def test_a_submission_is_its_submitters_alone(running: Served) -> None:
    with running.client(MINE) as mine, running.client(BOBS) as bobs, running.client() as nobody:
        number = submit(mine, SOURCE + "# wrong, a secret of mine\n", name="hidden.py")
        outcome(mine, number)
        assert bobs.get(f"/user/submissions/{number}").status_code == 403
        assert bobs.delete(f"/user/submissions/{number}").status_code == 403
        assert nobody.get(f"/user/submissions/{number}").status_code == 400
        assert number not in [one["id"] for one in bobs.get("/user/submissions").json()]
        everywhere = [bobs.get(path).text for path in ("/", "/live/queue", "/live/boards", "/leaderboards")]
        assert not any("a secret of mine" in text for text in everywhere)
        assert "hidden.py" in everywhere[1]  # what is queued may be seen, and by whom
        assert mine.get(f"/user/submissions/{number}").json()["code"].endswith("a secret of mine\n")
        for path in (f"/runs/serve/ada/{number}", "/runs/", "/../leaderboard.yaml", "/harness/assets/page.js"):
            assert bobs.get(path).status_code in (404, 405)


def test_an_id_names_its_user_and_a_name_belongs_to_its_first_id(running: Served) -> None:
    with (
        running.client({"X-Popcorn-Cli-Id": "frank:1"}) as frank,
        running.client({"X-Popcorn-Cli-Id": "FRANK:2"}) as other,
    ):
        assert outcome(frank, submit(frank))["user_id"] == "frank"
        answer = other.post(PATH, files={"file": ("a.py", SOURCE)})
        assert (answer.status_code, "taken by another id" in answer.text) == (401, True)
    names = []
    for secret in ("no-name-1", "no-name-2"):
        with running.client({"X-Popcorn-Cli-Id": secret}) as client:
            names.append(outcome(client, submit(client))["user_id"])
    assert names == [running.service.login, f"{running.service.login}-2"]
    stored = (running.folder / "queue.sqlite3").read_bytes() + (running.folder / "queue.sqlite3-wal").read_bytes()
    assert b"frank" in stored
    assert b"no-name-1" not in stored, "an id is a secret: only its hash is kept"


@pytest.mark.parametrize("secret", ["x" * 201, "tab\there"])
def test_an_id_that_is_none_is_refused(running: Served, secret: str) -> None:
    with running.client({"X-Popcorn-Cli-Id": secret}) as client:
        answer = client.post(PATH, files={"file": ("a.py", SOURCE)})
        assert (answer.status_code, "X-Popcorn-Cli-Id" in answer.text) == (401, True)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name", "source", "status", "says"),
    [
        (PATH, "a.py", b"", 400, "Empty file submitted"),
        (PATH, "a.py", NOT_UTF8, 400, "Failed to decode submission file content as UTF-8."),
        (PATH, "a.py", b"#" * (MAX_BYTES + 1), 413, "too large (limit: 1MB)"),
        (PATH, "a.cu", b"//", 400, "Please provide a Python (.py) file"),
        (PATH, "a.py", b"#!POPCORN leaderboard amd-all2all\n", 400, "doesn't match the one in the submission script"),
        (PATH, "a.py", b"#!POPCORN leaderboard\n", 400, "expected `#!POPCORN leaderboard NAME`"),
        (f"/submission/{GEMM}/{GPU}/private", "a.py", b"#", 400, "'private' is not supported for this endpoint"),
        (f"/submission/{GEMM}/{GPU}/fast", "a.py", b"#", 400, "Invalid submission mode value: 'fast'"),
        (f"/submission/{GEMM}/H100/test", "a.py", b"#", 400, "Supported GPUs: CPU, MI300x8"),
        (f"/submission/nothing/{GPU}/test", "a.py", b"#", 404, "Leaderboard `nothing` does not exist."),
        (f"/{GEMM}/H100/test", "a.py", b"#", 400, "GPU type 'H100' is not supported"),
        ("/user/submissions/1", "a.py", b"#", 405, "Method Not Allowed"),
    ],
)  # fmt: skip
def test_a_submission_that_cannot_be_is_refused(
    running: Served, path: str, name: str, source: bytes, status: int, says: str
) -> None:
    with running.client(MINE) as client:
        answer = client.post(path, files={"file": (name, source)})
        assert (answer.status_code, says in answer.json()["detail"]) == (status, True), answer.text


def test_without_an_id_or_a_file_nothing_is_queued(running: Served) -> None:
    with running.client() as client:
        answer = client.post(PATH, files={"file": ("a.py", SOURCE)})
        assert (answer.status_code, answer.json()) == (
            400,
            {"detail": "Missing X-Web-Auth-Id or X-Popcorn-Cli-Id header"},
        )
        answer = client.post(f"/{GEMM}/{GPU}/test", files={"file": ("a.py", SOURCE)})
        assert (answer.status_code, answer.json()) == (400, {"detail": "Missing X-Popcorn-Cli-Id header"})
        assert client.post(PATH, headers=MINE).status_code == 422


def test_a_web_sites_id_says_who_submits_as_well(running: Served) -> None:
    web = {"X-Web-Auth-Id": MINE["X-Popcorn-Cli-Id"]}
    with running.client(web) as client, running.client(MINE) as mine, running.client(BOBS | web) as both:
        number = submit(client)
        assert mine.get(f"/user/submissions/{number}").json()["user_id"] == "ada"
        assert both.get(f"/user/submissions/{number}").status_code == 200, "the web site's comes first"
        assert client.delete(f"/user/submissions/{number}").status_code == 200


def test_a_directive_for_the_same_leaderboard_or_another_gpu_is_no_obstacle(running: Served) -> None:
    with running.client(MINE) as client:
        source = f"#!POPCORN leaderboard {GEMM}\n#!POPCORN gpus B200\n{SOURCE}"
        assert outcome(client, submit(client, source))["job"]["status"] == "succeeded"


def test_a_body_that_is_too_long_is_refused_before_it_is_read(running: Served) -> None:
    """By its Content-Length at once; without one as soon as it has become too long."""
    host, port = running.url.removeprefix("http://").split(":")
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host}:{port}\r\nX-Popcorn-Cli-Id: ada:a secret\r\n"
    head += "Content-Type: multipart/form-data; boundary=b\r\n"
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(f"{head}Content-Length: {MAX_BODY_BYTES + 1}\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n'
        connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        chunk = b"10000\r\n" + b"#" * 0x10000 + b"\r\n"
        with_room = MAX_BODY_BYTES // 0x10000 + 1
        for _ in range(with_room):
            connection.sendall(chunk)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "name",
    [
        "../../../harness/report/page.py",
        "/etc/passwd.py",
        "..\\..\\evil.py",
        ".py",
        "...py",
        "a\x00b.py",
        "ü e.py",
        "x" * 300 + ".py",
    ],
)
def test_a_file_name_leads_nowhere(running: Served, name: str) -> None:
    """It is kept as a name, and the file is put below the queue's folder under one of harmless characters."""
    before = {path: path.stat().st_mtime_ns for path in (ROOT / "harness").glob("*.py")}
    with running.client(MINE) as client:
        answer = client.post(PATH, files={"file": (name, SOURCE.encode())})
        if answer.status_code == 202:
            found = outcome(client, answer.json()["details"]["id"])
            row = running.service.store.get(found["id"])
            assert row is not None
            path = running.service.worker.source(row)
            assert path.parent == running.folder / "sources" / "ada"
            assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,60}\.py", path.name)
            assert not set(found["file_name"]) & set("/\\")
        else:
            assert answer.status_code == 400
            assert not name.startswith("x"), "a long name is cut off at its beginning: its end names the language"
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert list((running.folder / "sources" / "ada").iterdir()) == [], "it lies there while it is evaluated"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.", ""])
def test_a_request_for_another_host_is_refused(running: Served, host: str) -> None:
    """As a page would make it whose name was made to resolve to 127.0.0.1 after it was loaded."""
    with running.client({**MINE, "Host": host}) as client:
        for path in ("/", "/health", "/user/submissions"):
            assert client.get(path).status_code == 421
        assert client.post(PATH, files={"file": ("a.py", SOURCE)}).status_code == 421
    with running.client({"Host": "LOCALHOST:1234"}) as client:
        assert client.get("/health").status_code == 200


def test_no_answer_is_for_another_origin(running: Served) -> None:
    with running.client({"Origin": "https://evil.example"}) as client:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-popcorn-cli-id"}
        for answer in (client.get("/health"), client.options(PATH, headers=asked), client.get("/")):
            assert not [name for name in answer.headers if name.startswith("access-control")]
        assert client.options(PATH, headers=asked).status_code == 405
        assert client.get("/").headers["x-frame-options"] == "DENY"


def test_queues_are_bounded_by_user_and_in_all(tmp_path: Path) -> None:
    few = QueueLimits(of_user=2, in_all=3)
    with served(tmp_path, limits=few) as found, found.client(MINE) as mine, found.client(BOBS) as bobs:
        first, second = (submit(mine, SOURCE + "# sleeps\n") for _ in range(2))
        answer = mine.post(PATH, files={"file": ("a.py", SOURCE)})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "30")
        submit(bobs)
        answer = bobs.post(PATH, files={"file": ("a.py", SOURCE)})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        mine.delete(f"/user/submissions/{second}")
        submit(mine)
        mine.delete(f"/user/submissions/{first}")
        until(lambda: len(bobs.get("/live/queue").json()["latest"]) == 2)


def test_streams_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.serve.events.STREAMS_OF_USER", 1)
    with served(tmp_path) as found, found.client(MINE) as client, found.client(MINE) as other:
        path, file = f"/{GEMM}/{GPU}/test", {"file": ("a.py", (SOURCE + "# sleeps\n").encode())}
        with client.stream("POST", path, files=file) as first:
            events = first.iter_text()
            assert next(events).startswith("event: status")
            answer = other.post(path, files=file)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        until(lambda: found.service.streams.total() == 0)
        assert len(other.get("/user/submissions").json()) == 1, "who hangs up does not end the evaluation"
        assert other.delete("/user/submissions/1").json() == {"status": "ok", "submission_id": 1}


def test_a_stream_is_told_of_every_end(tmp_path: Path) -> None:
    """Of the submission, by its owner; of the server, whose queue keeps it."""
    told: list[str] = []

    def listen(url: str) -> None:
        with PopcornClient(url, MINE["X-Popcorn-Cli-Id"]) as client:
            try:
                client.submit("a.py", (SOURCE + "# sleeps\n").encode(), GEMM, GPU, "profile")
            except Refused as refused:
                told.append(str(refused))

    with served(tmp_path) as found, found.client(MINE) as client:
        for number in (1, 2):
            listener = threading.Thread(target=listen, args=[found.url])
            listener.start()
            until(lambda number=number: found.begun()[-1:] == [number])
            if number == 1:
                client.delete("/user/submissions/1")
                listener.join(60)
    listener.join(60)
    assert told == [
        "The submission was deleted (Status Code: 404)",
        "The server is shutting down; submission 2 stays in its queue (Status Code: 503)",
    ]


# ---- beyond this machine ---------------------------------------------------------------------------------------------


def test_with_a_token_every_request_but_health_must_show_it(tmp_path: Path) -> None:
    token = "correct-horse-battery"
    with served(tmp_path, token=token) as found:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": f"Bearer {token}x"}, 401),
            ({"Authorization": token}, 401),
            ({"Authorization": "Basic !!!"}, 401),
            ({"Authorization": f"Bearer {token}"}, 200),
            ({"Authorization": "Basic OmNvcnJlY3QtaG9yc2UtYmF0dGVyeQ=="}, 200),  # as a browser sends it
        ):
            with found.client(headers) as client:
                assert client.get("/").status_code == status, headers
                assert client.get("/health").status_code == 200
        with found.client() as client:
            assert "Basic" in client.get("/").headers["www-authenticate"]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.evil.example", False), ("", False)],
)  # fmt: skip
def test_which_addresses_are_this_machines_own(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_another_address_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(guard.TOKEN_VARIABLE, raising=False)
    with pytest.raises(UsageError, match=r"--host 0\.0\.0\.0: .*--token FILE"):
        run("--host", "0.0.0.0")
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(UsageError, match="16 or more"):
        run("--host", "0.0.0.0", "--token", str(tmp_path / "token"))
    with pytest.raises(UsageError, match="cannot be read: No such file or directory; name a file that has a token"):
        guard.read_token(tmp_path / "nowhere", {})
    (tmp_path / "token").write_text("long-enough-to-be-one\n")
    assert guard.read_token(tmp_path / "token", {}) == "long-enough-to-be-one"
    assert guard.read_token(None, {guard.TOKEN_VARIABLE: "another-long-enough-one"}) == "another-long-enough-one"


def test_a_port_that_cannot_be_had_is_said(running: Served, tmp_path: Path) -> None:
    taken = int(running.url.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"--port {taken}: cannot be bound on 127"):
        server.make_server(running.service, "127.0.0.1", taken, None)
    with pytest.raises(UsageError, match="0 to 65535"):
        run("--port", "99999")


def test_without_its_packages_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"fastapi and uvicorn .*pip install -e '\.\[serve\]'"):
        run()


# ---- problem folders and competitions --------------------------------------------------------------------------------


def offers(*folders: str, competitions: tuple[Path, ...] = ()) -> dict[str, Offer]:
    asked = Asked(problem="", suite="quick", ranks=2, device="cpu")
    options = ServeOptions(asked=asked, folders=tuple(SINGLE / name for name in folders), competitions=competitions)
    return {offer.name: offer for offer in offered(options, Checkout.here())}


def test_folders_are_offered_beside_the_checkouts_problems() -> None:
    found = offers("scale", "../multi/rowsum")
    assert list(found) == [*OURS, "scale", "rowsum"]
    assert found["amd-gemm-rs"].argument == "gemm_rs"
    assert found["scale"].argument == str(SINGLE / "scale")
    command = eval_command(tuple(found.values()))
    row = SimpleNamespace(
        problem="single/scale", mode="test", user="ada", team=None, tool=None, benchmark=None, launch_count=None
    )
    words = list(command(row, Files(source=Path("a.py"))))  # type: ignore[arg-type]
    assert words[3:6] == ["eval", str(SINGLE / "scale"), "a.py"]
    assert "--device=cpu" in words
    assert not [word for word in words if word.startswith(("--suite", "--ranks"))], "a folder has one suite, one rank"
    row.problem = "gemm_rs"
    assert "--suite=quick" in command(row, Files(source=Path("a.py")))  # type: ignore[arg-type]


def test_a_competitions_problems_have_its_names_and_deadlines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "practice.yaml"
    (tmp_path / "single").symlink_to(SINGLE)
    file.write_text(
        "name: Practice\nproblems:\n"
        "  - {directory: single/scale, name: scale_v2, deadline: '2100-12-31', gpus: [B200]}\n"
        "  - {directory: single/nowhere, name: nothing_v2}\n"
        "  - {directory: amd/gemm-rs, name: amd-gemm-rs, deadline: '2025-10-15'}\n"
    )
    found = offers(competitions=(file,))
    assert list(found) == [*OURS, "scale_v2"]
    assert [name for name in found if found[name].closes is not None] == ["amd-gemm-rs", "scale_v2"]
    assert found["amd-gemm-rs"].argument == "gemm_rs", "this checkout's own, as `competition` takes it"
    assert "not served: " in capsys.readouterr().err
    with pytest.raises(UsageError, match="single/scale is offered under two names"):
        offers("scale", competitions=(file,))


def test_a_cuda_folder_is_offered_in_its_language_where_it_can_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ServeOptions(asked=Asked(problem=""), folders=(SINGLE / "cuda",))
    found = offered(options, Checkout.here())
    monkeypatch.setattr(programs, "nvcc", lambda: None)
    assert "cuda" not in [one.name for one in leaderboards(found, options, Checkout.here())]
    assert "not served: " in (said := capsys.readouterr().err)
    assert "there is no nvcc here" in said
    monkeypatch.setattr(programs, "nvcc", lambda: "/usr/local/cuda/bin/nvcc")
    known = {one.name: one for one in leaderboards(found, options, Checkout.here())}
    assert (known["cuda"].lang, known["scale" if "scale" in known else "amd-gemm-rs"].lang) == ("cu", "py")
    assert "CUDA C++" in known["cuda"].unprofiled
    task = known["cuda"].task
    assert (task["lang"], task["files"]["submission.cuh"]) == ("cu", "@SUBMISSION@")
    assert "submission.py" not in task["files"]
    assert task["config"]["sources"] == ["eval.cu"]
    assert "type" not in task["config"]


@pytest.mark.parametrize("name", ["a.cu", "b.cuh", "c.cpp", "..cu"])
def test_a_cuda_source_keeps_its_suffix(name: str, tmp_path: Path) -> None:
    with served(tmp_path / "serve") as found:
        known = tuple(replace(one, lang="cu") for one in found.service.catalogue.leaderboards)
        found.service.catalogue.leaderboards = known
        with found.client(MINE) as client:
            source = f"//!POPCORN leaderboard {GEMM}\nint x;\n"
            number = submit(client, source, mode="test", name=name)
            outcome(client, number)
            row = found.service.store.get(number)
            assert row is not None
            assert found.service.worker.source(row).name.endswith(f".{name.rpartition('.')[2]}")
            refused = client.post(PATH, files={"file": ("a.py", SOURCE)})
            assert refused.json()["detail"] == "Please provide a CUDA (.cu / .cuh / .cpp) file"


def test_two_problems_of_one_name_cannot_both_be_offered(tmp_path: Path) -> None:
    shutil.copytree(SINGLE, tmp_path / "other")
    with pytest.raises(UsageError, match="are both called scale; leave one out"):
        offers("scale", str(tmp_path / "other" / "scale"))


# ---- a real evaluation -----------------------------------------------------------------------------------------------


# `python -m harness`, but what it starts is run by another interpreter
SERVES = "import runpy, sys; sys.executable = sys.argv.pop(1); runpy.run_module('harness', run_name='__main__')"


def test_a_real_submission_is_evaluated_and_recorded_for_its_submitter(checkout: Path, tmp_path: Path) -> None:
    """From the command to the leaderboard, as a user would: quick suite, 2 ranks. Evaluations are forked commands."""
    command = [sys.executable, "-c", SERVES, preloaded.interpreter(f"{tmp_path}/python")]
    command += ["serve", "--port=0", "--suite=quick", "--ranks=2", "--seconds=0.05"]
    command += [f"--problem={SINGLE / 'scale'}"]
    environment = {name: value for name, value in os.environ.items() if name != guard.TOKEN_VARIABLE}
    server = subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        names, opened, *_ = (server.stdout.readline() for _ in range(3))
        assert names == "amd-all2all, amd-ag-gemm, amd-gemm-rs, llama, llama_lora, llama_pretrain, moe, scale\n"
        url = opened.split()[1].rstrip("/")
        source = (ROOT / "reference/a2a/reference.py").read_text() + "\n\ncustom_kernel = ref_kernel\n"
        with PopcornClient(url, "grace:1") as client:
            score = client.submit("mine.py", source.encode(), "amd-all2all", "CPU", "leaderboard")
            assert score.startswith("Geomean score (public) on CPU: 0.")
            (found,) = client.submissions("amd-all2all")
            runs = client.show(found["id"])["runs"]
            assert [(run["mode"], run["secret"], run["passed"]) for run in runs] == [
                ("test", False, True),
                ("benchmark", False, True),
                ("leaderboard", False, True),
                ("leaderboard", True, True),
            ]
            right = (SINGLE / "scale" / "template.py").read_bytes()
            assert client.submit("scaled.py", right, "scale", "CPU", "test").startswith("pass ")
            with pytest.raises(Refused, match=r"^Submission \d+ failed: test 1 of 2 failed: "):
                client.submit("scaled.py", b"def custom_kernel(data):\n    return data * 0\n", "scale", "CPU", "test")
            broken = b"def custom_kernel(data:\n"
            with pytest.raises(Refused, match=r"mine\.py:1: "):
                client.submit("mine.py", broken, "amd-all2all", "CPU", "test")
    finally:
        server.terminate()
        assert server.wait(120) == 0
    board = (checkout / "leaderboard.yaml").read_text()
    assert "author: grace" in board
    assert "file: runs/serve/sources/grace/mine.py" in board
