"""What GPUs have sent and received over their NVLinks, by their own counters. Does not import torch."""

from collections.abc import Sequence
from typing import Any

from harness.core.machine_records import LinkBytes
from harness.machine.nvml import link_bytes, opened
from harness.machine.readings import Unread, attempt


class LinkCounters:
    """The counters of the GPUs `indices` (NVML's; default all), which are open until close(). `nvml` is the module
    pynvml, or a test's fake."""

    def __init__(self, indices: Sequence[int] | None = None, nvml: Any = None) -> None:
        self._nvml, self._handles = opened(nvml, indices)

    def read(self) -> tuple[LinkBytes, ...] | Unread:
        """The bytes of each GPU so far, or why they cannot be read: no NVML, no NVLinks, no permission."""
        handles = self._handles
        if isinstance(handles, Unread):
            return handles
        return attempt(lambda: tuple(link_bytes(self._nvml, handle) for handle in handles.values()))

    def close(self) -> None:
        """Ends the use of NVML."""
        if not isinstance(self._handles, Unread):
            attempt(self._nvml.nvmlShutdown)
            self._handles = Unread(why="closed")
