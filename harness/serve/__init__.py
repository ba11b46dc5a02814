"""The verb `serve`: a server on this machine that popcorn-cli can submit to, and the boards as a live page.

The parts are guard (what every request must pass), api (GPU MODE's routes), offers (the leaderboards), store (the queue
in runs/serve/), worker (evaluations, as jobs of an engine), results (theirs out of ours), live (the page) and server,
which puts them together. FastAPI and uvicorn come with the extra `serve`.
"""

from harness.serve.offers import ServeOptions
from harness.serve.server import run_server

__all__ = ["ServeOptions", "run_server"]
