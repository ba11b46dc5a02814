"""Answer popcorn-cli, and show the boards live. A server on this machine that queues submissions and
evaluates them one by one, or several at once on a cluster; the page is at its address. Needs the extra `serve`."""

from dataclasses import dataclass
from pathlib import Path

from harness.cli import options
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import Exit
from harness.kinds.settings import DEVICES
from harness.serve import ServeOptions, run_server
from harness.serve.guard import ORGANISER_VARIABLE, TOKEN_VARIABLE


@dataclass(frozen=True, kw_only=True)
class ServeOrder(options.Sandboxed):
    host: str = option("127.0.0.1", "address to answer on (default: 127.0.0.1)")
    port: int = option(8000, "default: 8000; 0 takes a free one", metavar="PORT")
    token: Path | None = option(
        None,
        f"file with the token that every request must show; or set {TOKEN_VARIABLE}. Needed where --host is not "
        "this machine's own address",
    )
    suite: str | None = option(None, "which suite every submission is evaluated on (see `problems`)", metavar="S")
    ranks: int | None = option(None, "on how many ranks every submission runs")
    device: str | None = option(None, "on which device every submission runs", choices=DEVICES)
    seconds: float | None = option(None, "for about how long one benchmark is measured")
    gpus: tuple[str, ...] = option(
        (),
        "a GPU name that clients may ask for beside this machine's own (MI300x8); submissions run here all the same",
        "--gpu",
        metavar="NAME",
    )
    folders: tuple[Path, ...] = option(
        (),
        "a problem folder with KernelBot's task.yml that is offered beside this checkout's problems; may be repeated",
        "--problem",
        metavar="FOLDER",
    )
    competitions: tuple[Path, ...] = option(
        (),
        "a KernelBot competition file, whose problems are offered too, under its names; may be repeated",
        "--competition",
        metavar="YAML",
    )
    contests: tuple[Path, ...] = option(
        (),
        "a contest's file (docs/contest.md), offered to its teams by its rules; may be repeated",
        "--contest",
        metavar="YAML",
    )
    organiser_token: Path | None = option(
        None,
        "file with the token by which organisers see a contest's full page and use /admin (docs/gpumode.md); or "
        f"set {ORGANISER_VARIABLE}",
    )
    jobs: str = option(
        options.HERE,
        "where evaluations run: here (the default), or as jobs of the cluster that engine.yaml describes",
        "--engine",
        choices=options.ENGINES,
    )


def run(order: ServeOrder, checkout: Checkout) -> Exit:
    run_server(part(order, ServeOptions, engine=order.jobs, asked=options.asked(order, problem="")), checkout)
    return Exit.OK
