"""Programs in forks of one process, which has imported what takes long: each runs in a process of its own all the same.

python tests/forks.py IMPORTS      serves orders, a line of JSON each, and prints how each program ended
"""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class Forks:
    """Runs programs, one at a time, in whose names the imports' are. Use it as a context manager."""

    def __init__(self, imports: str, **environ: str) -> None:
        self._folder = TemporaryDirectory(prefix="forks-")
        self._process = subprocess.Popen(
            [sys.executable, __file__, imports],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def printed(self, text: str, *arguments: str, **environ: str) -> str:
        """What the program prints, which has to end well."""
        out, err = (Path(self._folder.name, name) for name in ("out", "err"))
        order = {"text": text, "argv": arguments, "environ": environ, "files": [str(out), str(err)]}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(order)}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "0\n", err.read_text()
        return out.read_text()


def serve(names: dict[str, Any]) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if (child := os.fork()) == 0:
            code = 1
            try:
                for number, path in enumerate((os.devnull, *order["files"])):
                    how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
                    os.dup2(os.open(path, how), number)
                sys.argv[1:] = order["argv"]
                os.environ.update(order["environ"])
                exec(order["text"], names)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    NAMES: dict[str, Any] = {"__name__": "__main__"}
    exec(sys.argv[1], NAMES)
    serve(NAMES)
