"""What a vendor's profiler is put around: `python -m harness.kinds.vendor_tool.rank JOB`, in a rank's staged folder.

It makes one input, calls the submission until it is warm, checks the last result by the problem's check_implementation,
and marks one more call for the profiler (harness/process/profilers.py). Nothing is timed, and all share the process.
"""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from harness.core.json_file import line_of, record_of
from harness.kinds.folder import rank_check
from harness.process.profiler_tool import RANGE
from harness.process.profilers import RESULT, ProfilerJob, Said
from harness.ranks import payload, torch_settings
from harness.ranks.program import failed, set_meeting
from harness.ranks.roles import custom_kernel

WARM_CALLS = 3
COUNTED = "counted.json"


def main(path: str) -> None:
    """Does the job of that file. What the submission does wrong is in the file RESULT."""
    folder = Path.cwd()
    job = record_of(ProfilerJob, Path(path).read_text())
    try:
        said = run(job, str(folder))
    except Exception as error:  # the submission's, the problem's, or the device's: the parent shows it
        reply = failed(error, str(folder))
        said = Said(raised=reply.message, traceback=reply.traceback)
    (folder / RESULT).write_text(line_of(said))


def run(job: ProfilerJob, folder: str) -> Said:
    """Calls the submission, and says whether its last warm result is right."""
    is_gpu = job.device != "cpu"
    device = torch.device("cuda", job.rank) if is_gpu else None
    if device is not None:
        torch.cuda.set_device(device)
    set_meeting(job.rank, job.world_size, job.port)
    torch_settings.evaluator(Path(folder))
    kernel = custom_kernel(folder)
    reference = importlib.import_module("reference")
    dist.init_process_group(
        backend="nccl" if is_gpu else "gloo",
        init_method=f"file://{job.meeting}",
        rank=job.rank,
        world_size=job.world_size,
        device_id=device,
    )
    default: AbstractContextManager[Any] = device if device is not None and job.sets_device else nullcontext()
    with default:
        data = rank_check.generated(reference.generate_input, job.params, job.rank, job.world_size, job.seed)
    output = None
    for _ in range(WARM_CALLS):
        output = kernel(payload.copied(data))
    with default:
        verdict = rank_check.checked(lambda: reference.check_implementation(payload.copied(data), output))
    copy = payload.copied(data)
    launches = 0
    if job.counts:
        launches = counted(lambda: kernel(copy), Path(folder) / COUNTED) if is_gpu else 0
    else:
        with _marked(job, is_gpu):
            kernel(copy)
    dist.destroy_process_group()
    return Said(wrong=verdict.message, launches=launches)


def counted(call: Callable[[], object], file: Path) -> int:
    """How many kernels the call launches, those of CUDA graphs too, by torch's profiler, whose trace goes to `file`."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(file))
    return sum(event.get("cat") == "kernel" for event in json.loads(file.read_text())["traceEvents"])


@contextmanager
def _marked(job: ProfilerJob, is_gpu: bool) -> Iterator[None]:
    """The call that counts is made within."""
    if not is_gpu:
        yield
        return
    cuda: Any = torch.cuda  # whose functions have no types here
    cuda.synchronize()
    if job.starts:
        cuda.profiler.start()
    cuda.nvtx.range_push(RANGE)
    yield
    cuda.synchronize()
    cuda.nvtx.range_pop()
    if job.starts:
        cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1])
