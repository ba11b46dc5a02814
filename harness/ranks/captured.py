"""Calls that are replays of CUDA graphs, for problem folders whose own eval.py times such replays.

A call is captured on its input's memory when a rank gets the input, outside of what is timed; the call itself is one
launch of the graph. What cannot be captured fails, as it does there. Where inputs come with their call (on CPU cores,
under the CUDA shim) the capture is part of the call.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from harness.ranks.stopwatch import Kernel, cloned

REFUSED = "the call cannot be captured as a CUDA graph, and the folder's eval.py times such graphs"


class Captured:
    """A kernel, by its graphs. `captures_late`: a call on an input that was not prepared is captured then; otherwise
    such a call is made without a graph."""

    def __init__(self, kernel: Kernel, captures_late: bool) -> None:
        self.kernel, self.captures_late = kernel, captures_late
        self.graphs: dict[int, tuple[Any, Any, Any]] = {}  # by the input's identity: the input, its graph, its result

    def prepare(self, inputs: Sequence[Any], is_readable: bool) -> None:
        """Captures a call on each input, in place of earlier ones. `is_readable`: the inputs have their values, so that
        a call on a copy can compile first what a capture may not compile."""
        self.graphs = {}
        if is_readable and inputs:
            self.kernel(cloned(inputs[0]))
        for data in inputs:
            self._capture(data)

    def __call__(self, data: Any) -> Any:
        if id(data) not in self.graphs:
            if not self.captures_late:
                return self.kernel(data)
            self.prepare([data], is_readable=True)
        _, graph, result = self.graphs[id(data)]
        graph.replay()
        return result

    def _capture(self, data: Any) -> None:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        current = torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            # Not torch.cuda.graph, which gives cached memory back: the driver would clear it beside later calls.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                result = self.kernel(data)
            except Exception as error:
                with contextlib.suppress(RuntimeError):  # it says that the capture failed, which `error` says better
                    graph.capture_end()
                raise RuntimeError(f"{REFUSED}: {error}").with_traceback(error.__traceback__) from None
            graph.capture_end()
        current.wait_stream(stream)
        self.graphs[id(data)] = data, graph, result
