"""What popcorn-cli sends and how it reads the answers, request by request.

After gpu-mode/popcorn-cli src/service/mod.rs, src/profile.rs, src/cmd/auth.rs and src/cmd/submissions.rs (read
2026-11); the binary itself is not needed. A Rust client takes fields by type (`as_str`, `as_i64`), so that these fail
here where it would show nothing.
"""

import base64
import io
import json
import time
import zipfile
from typing import Any

import httpx


class Refused(Exception):
    """What it prints and ends with."""


class PopcornClient:
    """`cli_id` is what ~/.popcorn.yaml has."""

    def __init__(self, url: str, cli_id: str | None = None) -> None:
        headers = {"X-Popcorn-Cli-Id": cli_id} if cli_id else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)
        self.log: list[str] = []

    def __enter__(self) -> "PopcornClient":
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def register(self, provider: str) -> str:
        """The id that it keeps."""
        return text(self._json(self._http.get(f"/auth/init?provider={provider}")), "state")

    def leaderboards(self) -> list[tuple[str, str]]:
        """Names and descriptions."""
        found = self._json(self._http.get("/leaderboards"))
        assert all(isinstance(one["task"], dict) for one in found)
        return [(text(one, "name"), text(one, "description")) for one in found]

    def gpus(self, leaderboard: str) -> list[str]:
        found = self._json(self._http.get(f"/gpus/{leaderboard}"))
        assert all(isinstance(name, str) for name in found)
        return list(found)

    def submit(self, name: str, source: bytes, leaderboard: str, gpu: str, mode: str) -> str:
        """What it prints at the end. Every mode but profile is queued and asked for; this profile is what earlier
        clients ask for."""
        if mode.lower() == "profile":
            answer = self._streamed(f"/{leaderboard.lower()}/{gpu}/{mode.lower()}", name, source)
            self.results = answer["results"]
            return json.dumps(answer["reports"])
        path = f"/submission/{leaderboard.lower()}/{gpu}/{mode.lower()}"
        accepted = self._json(self._http.post(path, **form(name, source)))
        number = whole(accepted["details"], "id")
        self.log.append(f"accepted, {whole(accepted['runner_queue'], 'queued_jobs')} queued")
        for _ in range(1000):
            found = self.show(number)
            job = found["job"]
            self.log.append(text(job, "status"))
            if job["status"] in ("failed", "timed_out", "hacked"):
                raise Refused(f"Submission {number} {job['status']}: {job['error']}")
            if found["done"]:
                return self._done(found, mode.lower(), gpu)
            time.sleep(0.02)
        raise AssertionError("it does not come to an end")

    def _done(self, found: dict[str, Any], mode: str, gpu: str) -> str:
        runs = [run for run in found["runs"] if run["runner"].lower() == gpu.lower()]
        if mode == "leaderboard":
            scored = [run for run in runs if run["mode"] == mode and not run["secret"] and run["passed"]]
            secret = [run for run in runs if run["secret"]]
            if not (scored and scored[0]["score"] is not None and secret and all(run["passed"] for run in secret)):
                raise Refused(found["job"]["error"] or "completed without a leaderboard score")
            return f"Geomean score (public) on {gpu}: {scored[0]['score']} s"
        mine = [run for run in runs if run["mode"] == mode and not run["secret"]]
        rows = [row for run in mine for row in self._rows(run["result"])]
        if any(not run["passed"] for run in mine):
            told = [run["diagnostics"]["stderr"] for run in mine if not run["passed"]]
            raise Refused("\n".join([*rows, *told]))
        return "\n".join(rows)

    def _rows(self, result: dict[str, Any]) -> list[str]:
        rows = []
        for kind in ("test", "benchmark"):
            for index in range(int(result.get(f"{kind}-count", 0))):
                key = f"{kind}.{index}"
                more = f" {float(result[f'{key}.mean']):.0f} ns" if f"{key}.mean" in result else ""
                more += f" {result[f'{key}.error']}" if f"{key}.error" in result else ""
                status = result[f"{key}.status"] if kind == "test" else result.get(f"{key}.status", "timed")
                rows.append(f"{status} {result[f'{key}.spec']}{more}")
        return rows

    def profile(self, name: str, source: bytes, leaderboard: str, gpu: str, **options: str) -> dict[str, list[str]]:
        """Both `--profile` and `--mode profile`: the names of the files that each run's archive is unpacked to.
        `options` are fields of the form."""
        answer = self._streamed(f"/profile/{leaderboard.lower()}/{gpu}", name, source, options)
        (result,) = answer["results"]
        if result["success"] is not True:
            raise Refused(f"Profiling failed: {result['error']}")
        assert result["runs"], "Server returned no profile runs"
        files, failures = {}, []
        for key, one in result["runs"].items():
            if one["run"]["success"] is False:
                failures.append(f"{key}: Execution failed:\n{one['run']['stderr']}")
            if one["profile"] is None or not isinstance(one["profile"]["trace"], str):
                failures.append(f"{key}: No NCU report was produced")
                continue
            archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(one["profile"]["trace"], validate=True)))
            files[key] = [
                one for one in archive.namelist() if one.endswith((".ncu-rep", "ncu-details.txt", "ncu-details.csv"))
            ]
            if not any(one.endswith(".ncu-rep") for one in files[key]):
                failures.append(f"{key}: NCU archive contains no .ncu-rep report")
        if failures:
            raise Refused("\n".join(failures))
        return files

    def _streamed(self, path: str, name: str, source: bytes, options: dict[str, str] = {}) -> dict[str, Any]:  # noqa: B006
        """The result event."""
        with self._http.stream("POST", path, **form(name, source, options)) as answer:
            if answer.status_code != 200:
                answer.read()
                self._json(answer)
            assert answer.headers["content-type"].startswith("text/event-stream")
            buffer = ""
            for chunk in answer.iter_text():
                buffer += chunk
                while "\n\n" in buffer:
                    message, _, buffer = buffer.partition("\n\n")
                    lines = dict(line.partition(":")[::2] for line in message.splitlines())
                    event, data = lines["event"].strip(), json.loads(lines["data"])
                    if event == "status":
                        self.log.append(data.get("message") or json.dumps(data))
                    elif event == "result":
                        return dict(data)
                    elif event == "error":
                        raise Refused(f"{data['detail']} (Status Code: {data.get('status_code')})")
        raise AssertionError("Stream ended unexpectedly without a final result or error event.")

    def submissions(self, leaderboard: str, limit: int | None = None) -> list[dict[str, Any]]:
        more = f"&limit={limit}" if limit is not None else ""
        found = self._json(self._http.get(f"/user/submissions?leaderboard={leaderboard}{more}"))
        for one in found:
            whole(one, "id"), text(one, "file_name"), text(one, "submission_time"), text(one, "leaderboard_name")
            assert isinstance(one["done"], bool)
            assert all(isinstance(run["gpu_type"], str) for run in one["runs"])
        return list(found)

    def show(self, number: int) -> dict[str, Any]:
        found = self._json(self._http.get(f"/user/submissions/{number}"))
        whole(found, "id"), whole(found, "leaderboard_id"), text(found, "user_id"), text(found, "code")
        for run in found["runs"]:
            text(run, "mode"), text(run, "runner")
            assert isinstance(run["secret"], bool)
            assert isinstance(run["passed"], bool)
        return dict(found)

    def delete(self, number: int) -> None:
        self.show(number)
        self._json(self._http.delete(f"/user/submissions/{number}"))

    def _json(self, answer: httpx.Response) -> Any:
        if not answer.is_success:
            raise Refused(f"Server returned status {answer.status_code}: {text(answer.json(), 'detail')}")
        return answer.json()


def form(name: str, source: bytes, options: dict[str, str] = {}) -> dict[str, Any]:  # noqa: B006
    """A form of one file, and of texts, as reqwest writes it: the parts have no Content-Type."""
    boundary = "1d8a60f3b2c94e57-0a1b2c3d4e5f6071-9f8e7d6c5b4a3928-0011223344556677"
    parts = [(f'name="file"; filename="{name}"', source)]
    parts += [(f'name="{key}"', value.encode()) for key, value in options.items()]
    begin = f"--{boundary}\r\nContent-Disposition: form-data; "
    body = b"".join(f"{begin}{head}\r\n\r\n".encode() + data + b"\r\n" for head, data in parts)
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return {"headers": headers, "content": body + f"--{boundary}--\r\n".encode()}


def text(values: dict[str, Any], name: str) -> str:
    assert isinstance(values[name], str), name
    return str(values[name])


def whole(values: dict[str, Any], name: str) -> int:
    assert type(values[name]) is int, name
    return int(values[name])
