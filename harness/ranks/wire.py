"""The messages between parent and ranks: typed records as JSON over a socket (ranks.channel), never pickles."""

import errno
import fcntl
import os
from dataclasses import dataclass, field
from typing import Literal

from harness.core.decode import DecodeError
from harness.core.records import Clock, Params, Verdicts
from harness.ranks.output_bounds import Bounded

MAX_FRAME_BYTES = 1 << 20  # a reply larger than this is not one of ours
KEPT_BYTES = 256 << 20  # of a device, that any rank may keep for later calls while others are on turn
Role = Literal["trusted", "baseline", "candidate"]  # which the parent alone knows of untrusted groups
# What other processes know: groups by their start. Which one is the baseline is drawn, so no rank can tell its role.
GroupName = Literal["trusted", "first", "second"]
# Out of memory of the device or host; a missing module; a problem that cannot be judged (its message begins with WEAK).
Reason = Literal["", "device_memory", "files", "memory", "module", "tasks", "weak"]
WEAK = "weak problem: "
# How fork says that there are too many processes, and torch, which then cannot start its threads.
NO_TASKS = os.strerror(errno.EAGAIN)
# The programs of ranks, as module:class: of those that judge by the strict checker, and of untrusted ones.
TRUSTED, UNTRUSTED = "harness.ranks.trusted:Trusted", "harness.ranks.roles:Untrusted"
MAX_FILES = 64  # that go with one message
MOST_US = 3e13  # that a rank may claim
STEP_EPOCHS = 2  # of a stepped call: its host may begin, its result was copied
INPUT_MEMORY = "input"  # of an output that lies where its input does
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW  # of a file that nobody can change any more


# ---- what a rank gets at its start -----------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Network:
    """The network of one group's ranks on several nodes: rank 0's address there, and the interface by which this node
    reaches it. With `own`, an address, that interface is made, and the group's ranks here have no other network."""

    master: str
    interface: str
    own: str = ""


@dataclass(frozen=True, kw_only=True)
class RankOrder:
    """Everything that a rank gets at its start. `group` says whether it is trusted. `threads` and `cores` (empty:
    any) are its share of the machine. The rank starts in `workdir`; its group's compilers keep their files in
    `cache`. Of the folders in `hidden` the rank sees only what is its own, what Python imports, and those in
    `shown`. Its `program` is named as module:class; outputs are judged if `judged` is set. With `cuda_is_cpu`,
    "cuda" means the CPU to the rank. A rank that is not `confined` may do what its user may. Each node runs
    `local_size` ranks of the group, one after the other; with more than one node there is a `network`. The first of
    them has GPU number `first_gpu` of the first `local_size`, the next one the next, around. It joins the cgroup
    `groups`, and keeps `kept_bytes` of its device. Modules of torch's, `preload`, are imported before it is forked."""

    group: GroupName
    rank: int
    world_size: int
    local_size: int
    device: str
    threads: int
    cores: tuple[int, ...]
    spin: bool
    workdir: str
    cache: str
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    program: str = UNTRUSTED
    judged: bool = True
    cuda_is_cpu: bool = False
    confined: bool = True
    network: Network | None = None
    first_gpu: int = 0
    kept_bytes: int = KEPT_BYTES
    groups: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    type: Literal["rank"] = "rank"

    @property
    def local_rank(self) -> int:
        """Its number among its group's ranks on its node."""
        return self.rank % self.local_size


# ---- commands: parent to rank ----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class ImportKernel:
    """Import the kernel from the working folder: the submission if one is there, else the reference. Before
    that, `settings` of torch hold, as ranks.torch_settings has them. Answer: Imported."""

    settings: dict[str, str] = field(default_factory=dict)
    type: Literal["import"] = "import"


@dataclass(frozen=True, kw_only=True)
class OpenGroup:
    """Call init_process_group; it is this group's `number`th. Answer: Done."""

    number: int
    free_port: int
    type: Literal["open"] = "open"


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input as it travels: a pickle (base64, by a trusted rank) without its tensors, which take `nbytes` of the
    input buffer. If `masked`, they are noise without their key. In a file of its own, its pickle is there too."""

    tree: str
    nbytes: int
    masked: bool


@dataclass(frozen=True, kw_only=True)
class BufferHandle:
    """A buffer's size, and the handle by which it is opened."""

    nbytes: int
    handle: str


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """The buffers in device memory that inputs and outputs pass through between the ranks of one number. Ranks on CPU
    cores have none: each input and output is in a file of its own, sealed, and sent with a message."""

    inputs: BufferHandle
    outputs: BufferHandle


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """One input to make: `hardened` for the strict checker, or else as published; masked unless `key` is 0. A training
    run's data is drawn from `hidden_seed`, which no candidate gets, and handed out period by period."""

    seed: int
    hardened: bool
    key: int = 0
    hidden_seed: str = ""
    period: int = 0


@dataclass(frozen=True, kw_only=True)
class MakeInputs:
    """Trusted ranks: make these inputs and write them to the input buffer, or to files. With `renew`, nobody else has
    the buffers open any more, and they are made anew. With `stepped`, inputs are for stepped calls: none is written
    before its call, and each takes the whole buffer. Of each input `judged` outputs are judged. Answer: InputsMade,
    behind the files."""

    params: Params
    inputs: tuple[InputSpec, ...]
    renew: bool = False
    stepped: bool = False
    judged: int = 1
    type: Literal["make_inputs"] = "make_inputs"


@dataclass(frozen=True, kw_only=True)
class LoadInputs:
    """Copy these inputs into the rank's own memory, ready for calls. Their files, if there are no buffers, come
    before the command. With `stepped`, nothing is copied: calls read the buffer. Answer: Done."""

    inputs: tuple[Input, ...]
    buffers: Buffers | None
    output_limit: int
    stepped: bool = False
    type: Literal["load_inputs"] = "load_inputs"


@dataclass(frozen=True, kw_only=True)
class Yield:
    """Drop the loaded inputs and give the device back what the allocator keeps, if it is much. `case`: another case
    begins, so close the shared buffers, too, and give back all: where a case's memory lies is then not left to what
    the cases before it took. A trusted rank closes what it has opened of other ranks' memory instead. Answer: Done."""

    case: bool = False
    type: Literal["yield"] = "yield"


@dataclass(frozen=True, kw_only=True)
class Call:
    """Call the kernel on each of these inputs. For each call: wait for the key if the input is masked, flush a GPU's
    caches, answer AtBarrier (before the first call only), wait for the barrier's `epoch` (one more with every call),
    run. Answer Called, behind a file for each output if there are no buffers. Index -1 is an empty call, for the
    clock's resolution.

    With `gated`, the file of the only input comes after AtBarrier (none: an empty call, or one more on the last input).
    Ranks read it, wait for each other and run; when all have finished, they send their outputs' files, then Called.

    `idle`: all of that but the kernel, whose place a copy of the last gated call's result takes."""

    indices: tuple[int, ...]
    epoch: int
    clock: Clock
    gated: bool = False
    idle: bool = False
    output_limit: int = 0
    type: Literal["call"] = "call"


Work = Literal["call", "nothing", "copy"]  # of a stepped call: the kernel, or what an overhead is known from


@dataclass(frozen=True, kw_only=True)
class StepCalls:
    """Make these stepped calls, one after the other, from `epoch` on. For each: queue on the device, between the words
    of the second step, the kernel (or `work`: nothing, or a copy of the last result); answer Stepped; wait for the
    barrier's next epoch. If they are not `ahead`, wait for its epoch before the kernel. Answer Called."""

    indices: tuple[int, ...]
    work: tuple[Work, ...]
    epoch: int
    ahead: bool
    type: Literal["step_calls"] = "step_calls"


@dataclass(frozen=True, kw_only=True)
class Output(Bounded):
    """What a call returned, as the candidate rank declares it. The bytes lie at `offset` in the output buffer, or in
    the call's file; a file has this record too, behind them, and that one is judged. There are no bytes if `note` says
    why the value could not be handed over.

    A tuple, list or dict has its parts in `items`, each with its own place, and a dict its keys in `keys`. A plain
    value is in `plain`. The strict checker takes a tensor, or a tuple of tensors where that is the right result.

    The bytes that a stepped call leaves where they are lie at `offset` in `memory`, an allocation of the rank's by its
    IPC handle, or INPUT_MEMORY for the input buffer, with these strides (in elements)."""

    kind: str  # the value's exact type, "torch.Tensor" when right
    dtype: str
    shape: tuple[int, ...]
    device: str
    offset: int
    nbytes: int
    note: str = ""
    items: tuple["Output", ...] = ()
    keys: tuple[str, ...] = ()
    plain: int | bool | float | str | None = None
    memory: str = ""
    strides: tuple[int, ...] = ()


NO_OUTPUT = Output(kind="None", dtype="", shape=(), device="", offset=0, nbytes=0, note="nothing returned")


@dataclass(frozen=True, kw_only=True)
class TakeOutputs:
    """Trusted ranks: copy these outputs, out of the buffer now, so that the candidate rank cannot change them any more,
    or out of the files that came before. Outputs that are not `judged` are the baseline's, which are not in the buffer:
    as many bytes are copied, so that it takes as long, and nothing is kept. Answer: Done."""

    outputs: tuple[Output, ...]
    judged: bool
    type: Literal["take_outputs"] = "take_outputs"


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Trusted ranks: queue on the device what surrounds stepped call `epoch`. With `put`, behind the first step: write
    that input to the buffer (-1: none), flush the caches, tell. With `take`, behind the second step: copy that output,
    which is to be `judged` or dropped, tell. Answer Done, when all is queued."""

    epoch: int
    put: int | None = None
    take: Output | None = None
    judged: bool = True
    type: Literal["serve"] = "serve"


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Trusted ranks: judge an output as the result of input `index`. `taken` counts the outputs taken since the inputs
    were made. `published` adds the published tolerance (for inputs as published). `last`: no other is judged right
    behind it, so memory goes back to the device. Answer: Verified."""

    index: int
    taken: int
    published: bool
    last: bool = True
    type: Literal["verify"] = "verify"


Memory = Literal["regain", "watch_memory", "tell_memory"]
What = Literal[Memory, "compile", "close_group", "start_profile", "stop_profile", "measure_peaks"]


@dataclass(frozen=True, kw_only=True)
class Do:
    """A command that says nothing more. Answer Done where nothing else is said.

    compile         rank 0: import the kernel, so that the other ranks find what the import compiles; Imported
    close_group     leave the process group (torch.distributed.destroy_process_group)
    regain          take as much of the device's memory again as was given back, so that no call has to
    watch_memory    the next call's memory is to be told
    tell_memory     how much memory the rank has had at most, and during the call that was watched; MemoryTold
    start_profile   untrusted ranks: from now on calls on the wall clock run under torch.profiler
    stop_profile    untrusted ranks: end that, and write the trace (ranks.trace.FILE in the working folder)
    measure_peaks   trusted ranks: measure this machine's rates, all ranks at once; PeaksMeasured
    """

    what: What
    type: Literal["do"] = "do"


Command = (
    ImportKernel | OpenGroup | MakeInputs | LoadInputs | Yield | Call | StepCalls | TakeOutputs | Serve | Verify | Do
)


# ---- replies: rank to parent -----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Done:
    type: Literal["done"] = "done"


@dataclass(frozen=True, kw_only=True)
class Imported:
    """`device` is the device's model; empty if it is the host itself. `settings` of torch hold after the import."""

    device: str
    settings: dict[str, str] = field(default_factory=dict)
    type: Literal["imported"] = "imported"


@dataclass(frozen=True, kw_only=True)
class InputsMade:
    """`output_limit`: the most bytes of an output for these inputs. `spare_bytes`: the device's free memory."""

    inputs: tuple[Input, ...]
    buffers: Buffers | None
    output_limit: int
    spare_bytes: int
    type: Literal["inputs_made"] = "inputs_made"


@dataclass(frozen=True, kw_only=True)
class AtBarrier:
    epoch: int
    type: Literal["at_barrier"] = "at_barrier"


@dataclass(frozen=True, kw_only=True)
class CallSample:
    """CLOCK_MONOTONIC before and after the call (one clock for all processes of a host), and the device's own time if
    the device clock was asked for."""

    start_ns: int
    end_ns: int
    device_us: float | None
    output: Output | None  # None: an empty call

    def __post_init__(self) -> None:
        for name in ("start_ns", "end_ns"):
            if not 0 <= getattr(self, name) < 1 << 63:
                raise DecodeError(f".{name}", "expected nanoseconds of 63 bits")


@dataclass(frozen=True, kw_only=True)
class Called:
    """`excess_bytes`: device memory that the rank holds for later calls, where it is more than it may keep."""

    samples: tuple[CallSample, ...]
    excess_bytes: int = 0
    type: Literal["called"] = "called"


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """A stepped call is queued or made. Its output and the host's time to queue it (us) are claims."""

    epoch: int
    output: Output
    host_us: float
    type: Literal["stepped"] = "stepped"

    def __post_init__(self) -> None:
        if not 0 < self.host_us < MOST_US:
            raise DecodeError(".host_us", "expected microseconds above 0, less than a year's")


@dataclass(frozen=True, kw_only=True)
class Verified:
    """`quality` is that of an output which is judged by it; None where it is not finite. `is_unchanged`: as before."""

    verdicts: Verdicts
    quality: float | None = None
    is_unchanged: bool = False
    type: Literal["verified"] = "verified"


@dataclass(frozen=True, kw_only=True)
class MemoryTold:
    """The most that the rank's allocator has held on its device, or that a rank on CPU cores has had resident.
    `call_bytes`: the most device memory that it had during the call that was watched; 0 on CPU cores."""

    peak_bytes: int
    call_bytes: int = 0
    type: Literal["memory_told"] = "memory_told"

    def __post_init__(self) -> None:
        for name in ("peak_bytes", "call_bytes"):
            if not 0 <= getattr(self, name) < 1 << 63:
                raise DecodeError(f".{name}", "expected bytes, in 63 bits")


@dataclass(frozen=True, kw_only=True)
class PeaksMeasured:
    """Rates of this rank while all ranks work at once."""

    flops_per_s: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    type: Literal["peaks_measured"] = "peaks_measured"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The command raised. `message` is the exception's last line; `reason` is its cause where it is one of these."""

    message: str
    traceback: str
    reason: Reason = ""
    type: Literal["failed"] = "failed"


Reply = Done | Imported | InputsMade | AtBarrier | Called | Stepped | Verified | MemoryTold | PeaksMeasured | Failed
