"""The verb `serve`: popcorn-cli's API and the live page on this machine."""

import argparse
from pathlib import Path

from harness.cli import options
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.kinds.settings import DEVICES
from harness.serve import ServeOptions, run_server
from harness.serve.guard import ORGANISER_VARIABLE, TOKEN_VARIABLE

DESCRIPTION = """Answer popcorn-cli, and show the boards live. A server on this machine that queues submissions and
evaluates them one by one, or several at once on a cluster; the page is at its address. Needs the extra `serve`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `serve`."""
    parser.add_argument("--host", default="127.0.0.1", help="address to answer on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000; 0 takes a free one")
    parser.add_argument(
        "--token",
        type=Path,
        metavar="FILE",
        help=f"file with the token that every request must show; or set {TOKEN_VARIABLE}. Needed where --host is not "
        "this machine's own address",
    )
    parser.add_argument("--suite", metavar="S", help="which suite every submission is evaluated on (see `problems`)")
    parser.add_argument("--ranks", type=int, metavar="N", help="on how many ranks every submission runs")
    parser.add_argument("--device", choices=DEVICES, help="on which device every submission runs")
    parser.add_argument("--seconds", type=float, help="for about how long one benchmark is measured")
    options.add_unconfined(parser)
    parser.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="NAME",
        help="a GPU name that clients may ask for beside this machine's own (MI300x8); submissions run here all the "
        "same",
    )
    parser.add_argument(
        "--problem",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a problem folder with KernelBot's task.yml that is offered beside this checkout's problems; may be "
        "repeated",
    )
    parser.add_argument(
        "--competition",
        type=Path,
        action="append",
        default=[],
        metavar="YAML",
        help="a KernelBot competition file, whose problems are offered too, under its names; may be repeated",
    )
    parser.add_argument(
        "--contest",
        type=Path,
        action="append",
        default=[],
        metavar="YAML",
        help="a contest's file (docs/contest.md), offered to its teams by its rules; may be repeated",
    )
    parser.add_argument(
        "--organiser-token",
        type=Path,
        metavar="FILE",
        help="file with the token by which organisers see a contest's full page and use /admin (docs/gpumode.md); or "
        f"set {ORGANISER_VARIABLE}",
    )
    parser.add_argument(
        "--engine",
        dest="jobs",  # main's `engine` is where a whole command runs
        default=options.HERE,
        choices=options.ENGINES,
        help="where evaluations run: here (the default), or as jobs of the cluster that engine.yaml describes",
    )


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`serve`: answers until it is told to end."""
    run_server(
        ServeOptions(
            host=namespace.host,
            port=namespace.port,
            token=namespace.token,
            gpus=tuple(namespace.gpu),
            folders=tuple(namespace.problem),
            competitions=tuple(namespace.competition),
            contests=tuple(namespace.contest),
            organiser_token=namespace.organiser_token,
            engine=namespace.jobs,
            asked=options.asked(namespace, problem=""),
        ),
        checkout,
    )
    return Exit.OK
