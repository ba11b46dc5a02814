"""What organisers may do over HTTP, and nobody else. Requests are those of popcorn-cli's `admin` and of GPU MODE's
admin API (gpu-mode/kernelbot src/kernelbot/api/main.py, read 2026-11)."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from places import SINGLE
from serving import BOBS, GEMM, GPU, MINE, OPTIONS, SOURCE, Served, outcome, served, submit

from harness.serve import statistics
from harness.serve.offers import ServeOptions

TOKEN, ORGANISERS = "everybody's-token-here", "the-organisers-token"
ADMIN = {"Authorization": f"Bearer {ORGANISERS}"}
ROUTES = [
    ("POST", "/admin/start"),
    ("POST", "/admin/stop"),
    ("GET", "/admin/stats"),
    ("POST", "/admin/ban/1"),
    ("DELETE", "/admin/ban/1"),
    ("POST", "/admin/leaderboards"),
    ("DELETE", f"/admin/leaderboards/{GEMM}"),
    ("POST", f"/admin/leaderboards/{GEMM}/visibility"),
    ("GET", f"/admin/leaderboards/{GEMM}/submissions"),
    ("GET", "/admin/submissions/1"),
    ("DELETE", "/admin/submissions/1"),
    ("DELETE", "/admin/submissions?leaderboard_id=1&user_name=ada"),
    ("POST", "/admin/update-problems"),
    ("POST", "/admin/export-hf"),
    ("GET", "/admin"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("admin"), organisers=ORGANISERS) as found:
        yield found


@pytest.fixture
def admin(running: Served) -> Iterator[httpx.Client]:
    with running.client(ADMIN) as client:
        yield client


def detail(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["detail"]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_the_organisers_token_nothing_is_told_or_done(method: str, path: str, running: Served) -> None:
    body = {"visibility": "closed"} if method == "POST" else None
    with running.client() as client:
        status, text = detail(client.request(method, path, json=body, follow_redirects=True))
        assert (status, text.partition(";")[0]) == (401, "Missing Authorization header")
        assert "--organiser-token" in text
        for wrong in ({"headers": {"Authorization": "Bearer guessed"}}, {"auth": ("me", ORGANISERS)}):
            assert detail(client.request(method, path, json=body, follow_redirects=True, **wrong)) == (  # type: ignore[arg-type]
                401,
                "Invalid admin token",
            )
        assert client.get("/leaderboards").json()[0]["visibility"] == "public"
    assert running.service.accepts_jobs


def test_everybodys_token_is_not_the_organisers(tmp_path: Path) -> None:
    with served(tmp_path, token=TOKEN, organisers=ORGANISERS) as found, found.client(ADMIN) as client:
        assert client.post("/admin/stop").json() == {"status": "ok", "accepts_jobs": False}
        refused = client.post("/admin/stop", headers={"Authorization": f"Bearer {TOKEN}"})
        assert detail(refused) == (401, "Invalid admin token")


def test_a_server_without_organisers_has_no_admin(tmp_path: Path) -> None:
    with served(tmp_path) as found, found.client() as client:
        assert client.post("/admin/stop", auth=("", "")).status_code == 401
        assert client.post("/admin/stop", headers={"Authorization": "Bearer None"}).status_code == 401


def test_a_stopped_server_takes_nothing_until_it_is_started(running: Served, admin: httpx.Client) -> None:
    with running.client(MINE) as mine:
        assert admin.post("/admin/stop").json() == {"status": "ok", "accepts_jobs": False}
        for path in (f"/submission/{GEMM}/{GPU}/test", f"/{GEMM}/{GPU}/test"):
            answer = mine.post(path, files={"file": ("a.py", SOURCE)})
            assert detail(answer) == (503, "This server does not accept submissions at the moment.")
            assert "retry-after" in answer.headers
        assert admin.post("/admin/start").json() == {"status": "ok", "accepts_jobs": True}
        assert outcome(mine, submit(mine))["done"]


def test_a_banned_user_submits_nothing_and_is_let_in_again(running: Served, admin: httpx.Client) -> None:
    with running.client(BOBS) as bob, running.client(MINE) as mine:
        number = submit(bob)
        assert admin.post("/admin/ban/BOB").json() == {"status": "ok", "user_id": "bob", "banned": True}
        answer = bob.post(f"/submission/{GEMM}/{GPU}/test", files={"file": ("a.py", SOURCE)})
        assert detail(answer) == (403, "bob is banned from this server; ask its organisers")
        assert outcome(bob, number)["job"]["status"] == "succeeded", "earlier ones stay"
        submit(mine)
        assert admin.delete("/admin/ban/bob").json() == {"status": "ok", "user_id": "bob", "banned": False}
        submit(bob)
    assert detail(admin.post("/admin/ban/1")) == (404, "User 1 not found")
    assert detail(admin.delete("/admin/ban/1")) == (404, "User 1 not found")


def test_a_closed_leaderboard_is_neither_shown_nor_submitted_to(running: Served, admin: httpx.Client) -> None:
    path = "/admin/leaderboards/AMD_gemm_rs/visibility"
    with running.client(MINE) as mine:
        number = submit(mine)
        outcome(mine, number)
        shown = [one["id"] for one in mine.get("/live/queue").json()["latest"]]
        version, page = mine.get("/live/boards").json()["version"], mine.get("/live/boards").text
        assert number in shown
        closed = admin.post(path, json={"visibility": "closed"}).json()
        assert closed == {"status": "ok", "leaderboard": GEMM, "visibility": "closed"}
        visible = {one["name"]: one["visibility"] for one in mine.get("/leaderboards").json()}
        assert visible[GEMM] == "closed"
        assert set(visible.values()) == {"closed", "public"}
        for place in (f"/gpus/{GEMM}", f"/submissions/{GEMM}/{GPU}", f"/submission_count/{GEMM}/{GPU}"):
            assert detail(mine.get(place)) == (403, f"Leaderboard `{GEMM}` is closed.")
        answer = mine.post(f"/submission/{GEMM}/{GPU}/test", files={"file": ("a.py", SOURCE)})
        assert detail(answer) == (403, f"Leaderboard `{GEMM}` is closed.")
        assert mine.get(f"/user/submissions/{number}").status_code == 200, "one's own"
        assert mine.get("/live/queue").json()["latest"] == []
        boards = mine.get("/live/boards").json()
        assert boards["version"] != version
        assert "gemm_rs" in page
        assert "gemm_rs" not in json.dumps(boards["page"])
        assert admin.post(path, json={"visibility": "public"}).json()["visibility"] == "public"
        assert number in [one["id"] for one in mine.get("/live/queue").json()["latest"]]
    assert admin.post(path, json={"visibility": "secret"}).status_code == 422
    assert admin.post("/admin/leaderboards/nothing/visibility", json={"visibility": "closed"}).status_code == 404


def test_organisers_see_and_delete_everybodys_submissions(running: Served, admin: httpx.Client) -> None:
    with running.client({"X-Popcorn-Cli-Id": "eve:1"}) as eve:
        numbers = [submit(eve, name=name) for name in ("one.py", "two.py", "three.py")]
        for number in numbers:
            outcome(eve, number)
        found = admin.get(f"/admin/leaderboards/{GEMM}/submissions?limit=2").json()
        assert (found["leaderboard"], found["limit"], found["offset"]) == (GEMM, 2, 0)
        assert [one["file_name"] for one in found["submissions"]] == ["three.py", "two.py"]
        assert found["submissions"][0]["user_name"] == "eve"
        assert found["submissions"][0]["score"] > 0
        shown = admin.get(f"/admin/submissions/{numbers[0]}").json()
        assert (shown["status"], shown["submission"]["code"]) == ("ok", SOURCE)
        gone = admin.delete(f"/admin/submissions/{numbers[0]}").json()
        assert gone == {"status": "ok", "submission_id": numbers[0]}
        assert detail(eve.get(f"/user/submissions/{numbers[0]}")) == (404, "Submission not found")
        assert detail(admin.delete(f"/admin/submissions/{numbers[0]}")) == (404, "Submission not found")
        board = next(one["id"] for one in eve.get("/leaderboards").json() if one["name"] == GEMM)
        params = {"leaderboard_id": board, "user_name": "eve"}
        assert admin.delete("/admin/submissions", params=params).json()["deleted"] == 2
        assert eve.get("/user/submissions").json() == []
        assert admin.delete("/admin/submissions", params=params | {"user_name": "nobody"}).status_code == 404
        assert admin.delete("/admin/submissions", params=params | {"leaderboard_id": 999}).status_code == 404


def test_statistics_count_what_was_done(tmp_path: Path) -> None:
    with served(tmp_path, organisers=ORGANISERS) as found, found.client(ADMIN) as admin:
        with found.client(MINE) as mine, found.client(BOBS) as bob:
            for client, source in ((mine, SOURCE), (mine, SOURCE), (bob, SOURCE + "# wrong\n")):
                outcome(client, submit(client, source))
        stats = admin.get("/admin/stats").json()["stats"]
        counts = {"num_submissions": 3, "sub_waiting": 0, "num_users": 2, "num_unique_codes": 2}
        assert counts.items() <= stats.items()
        assert (stats["num_run.CPU"], stats["runs_secret.CPU"]) == (2 * 4 + 1, 2), "the wrong one ran its tests alone"
        assert stats["runs_passed.CPU"] == 2 * 4
        day = admin.get("/admin/stats?last_day_only=true").json()["stats"]
        assert {"total.ada", "total.bob"} <= set(day)
        assert "num_unique_codes" not in day
        assert admin.get("/admin/stats?leaderboard_name=amd-all2all").json()["stats"]["num_submissions"] == 0
        assert admin.get("/admin/stats?leaderboard_name=nothing").status_code == 404
        rows = found.service.store.listed(None, None)
    took = {"start_time": "2026-11-25T10:00:00+00:00", "end_time": "2026-11-25T10:00:08+00:00"}
    one = {**took, "runner": "CPU", "mode": "leaderboard", "passed": True, "score": 1.0}
    runs = [one | {"secret": False}, one | {"secret": True}]
    (row,) = rows[:1]
    shown = statistics.of_queue([type(row)(**vars(row) | {"runs": runs, "submitted_at": "2026-11-25T09:59:58+00:00"})])
    assert (shown["total_runtime.CPU"], shown["max_delay.CPU"], shown["num_run.CPU"]) == (8.0, 2.0, 2), "one evaluation"


def test_the_last_day_is_the_last_day(tmp_path: Path) -> None:
    with served(tmp_path, organisers=ORGANISERS) as found, found.client(ADMIN) as admin:
        with found.client(MINE) as mine:
            outcome(mine, submit(mine))
        before = (datetime.now(UTC) - timedelta(hours=25)).isoformat()
        store = found.service.store
        with store._file.transaction():
            store._db.execute("UPDATE submissions SET submitted_at = ?", (before,))
        assert admin.get("/admin/stats").json()["stats"]["num_submissions"] == 1
        assert admin.get("/admin/stats?last_day_only=true").json()["stats"]["num_submissions"] == 0


def test_problems_are_read_again(tmp_path: Path) -> None:
    """A changed folder is updated, a new one of the competition is created, a broken one is an error."""
    shutil.copytree(SINGLE, tmp_path / "single")
    listed = tmp_path / "set.yaml"
    name = "name: Set\ndeadline: 2099-01-01\nproblems:\n"
    line = "  - {{directory: single/{0}, name: {0}-board, gpus: [CPU]}}\n"
    listed.write_text(name + line.format("scale"))
    options = ServeOptions(asked=OPTIONS.asked, competitions=(listed,))
    with served(tmp_path / "queue", organisers=ORGANISERS, options=options) as found, found.client(ADMIN) as admin:
        before = {one["name"]: one["id"] for one in admin.get("/leaderboards").json()}
        first = admin.post("/admin/update-problems", json={}).json()
        assert (first["created"], first["updated"], first["removed"], first["errors"]) == ([], [], [], [])
        assert set(first["skipped"]) == set(before)
        reference = tmp_path / "single" / "scale" / "reference.py"
        reference.write_text(reference.read_text() + "\n# changed\n")
        listed.write_text(name + line.format("scale") + line.format("wired") + line.format("missing"))
        found_now = admin.post("/admin/update-problems", json={"visibility": "closed"}).json()
        assert (found_now["created"], found_now["updated"]) == (["wired-board"], ["scale-board"])
        assert len(found_now["errors"]) == 1
        assert "missing" in found_now["errors"][0]
        after = {one["name"]: one for one in admin.get("/leaderboards").json()}
        assert after["scale-board"]["task"]["files"]["reference.py"].endswith("# changed\n")
        assert {one: after[one]["id"] for one in before} == before
        assert (after["wired-board"]["id"], after["wired-board"]["visibility"]) == (max(before.values()) + 1, "closed")
        assert "wired-board" in admin.get("/openapi.json").text
        listed.write_text(name + line.format("wired"))
        assert admin.post("/admin/update-problems", json={}).json()["removed"] == ["scale-board"]
        assert admin.get("/gpus/scale-board").status_code == 404
        listed.write_text("name: [\n")
        assert admin.post("/admin/update-problems", json={}).status_code == 400
        assert "wired-board" in {one["name"] for one in admin.get("/leaderboards").json()}


def test_a_repository_is_not_downloaded(admin: httpx.Client) -> None:
    for key in ("repository", "branch", "problem_set"):
        status, text = detail(admin.post("/admin/update-problems", json={key: "x"}))
        assert (status, text.partition(" ")[0]) == (400, key)


def test_leaderboards_are_created_and_deleted(tmp_path: Path) -> None:
    """As popcorn-cli's admin create-leaderboard and delete-leaderboard ask for it; a restart keeps what was created."""
    folder = shutil.copytree(SINGLE, tmp_path / "set") / "scale"
    with served(tmp_path / "queue", organisers=ORGANISERS) as found, found.client(ADMIN) as admin:
        before = [one["name"] for one in admin.get("/leaderboards").json()]
        asked = {"directory": str(folder)}
        for _ in range(2):  # the second time reads it again
            answer = admin.post("/admin/leaderboards", json=asked).json()
            assert answer == {"status": "ok", "leaderboard": "scale-dev"}
        assert [one["name"] for one in admin.get("/leaderboards").json()] == [*before, "scale-dev"]
        for wrong, why in (
            (str(tmp_path / "none"), "none"),
            (str(tmp_path), "task.yml"),
            (str(Path("reference") / "a2a"), "a2a"),
            ("a\0b", "no folder's name"),
        ):
            status, text = detail(admin.post("/admin/leaderboards", json={"directory": wrong}))
            assert (status, why in text) == (400, True), text
        other = shutil.copytree(SINGLE, tmp_path / "other") / "scale"
        assert "is, as scale-dev" in detail(admin.post("/admin/leaderboards", json={"directory": str(other)}))[1]
        (folder / "task.yml").rename(folder / "away")
        assert detail(admin.post("/admin/leaderboards", json=asked))[0] == 400
        (folder / "away").rename(folder / "task.yml")
        with found.client(MINE) as mine:
            sent = mine.post(f"/submission/scale-dev/{GPU}/test", files={"file": ("mine.py", SOURCE.encode())})
            outcome(mine, int(sent.json()["details"]["id"]))
    with served(tmp_path / "queue", organisers=ORGANISERS) as found, found.client(ADMIN) as admin:
        path = "/admin/leaderboards/scale-dev"
        assert detail(admin.delete(path)) == (400, "scale-dev has 1 submission; force=true deletes them too")
        assert admin.delete(f"{path}?force=true").json() == {"status": "ok", "leaderboard": "scale-dev", "force": True}
        assert admin.get("/admin/stats").json()["stats"]["num_submissions"] == 0
        assert [one["name"] for one in admin.get("/leaderboards").json()] == before
        assert detail(admin.delete(path))[0] == 404
        assert "started with" in detail(admin.delete(f"/admin/leaderboards/{GEMM}?force=true"))[1]


def test_what_there_is_not_is_said(admin: httpx.Client) -> None:
    status, text = detail(admin.post("/admin/export-hf", json={}))
    assert (status, text.partition(";")[0]) == (404, "There is no /admin/export-hf here, or not by this method")
