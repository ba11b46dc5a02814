"""What an evaluation by our ranks will do: phases, seeds, budgets, shares of the machine."""

import secrets
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.core.records import Clock, Warning
from harness.core.stats import block
from harness.kinds.kind import SECRET_BITS, Order, Phase, Plan
from harness.kinds.phases import planned
from harness.machine import host
from harness.machine.host import cores
from harness.problems.drawn import drawn_cases
from harness.ranks.barrier import KEY_BITS
from harness.ranks.clocks import MIN_SAMPLES, Budget

ON_NODES: tuple[Clock, ...] = ("wall",)  # devices start together by one page of memory, which nodes do not share
CLOCKS: dict[str, tuple[Clock, ...]] = {
    "cpu": ("wall",),
    "cuda": ("device", "wall", "gpumode"),  # the first one ranks
    "rocm": ("wall", "device", "gpumode"),
}
IN_FLIGHT_BYTES = 32 << 30  # of a device: ten inputs of 0.5 GiB, with the copies that three groups have of each
# Of a shape, from which on an evaluation also times the reference beside itself: shorter ones are there to see whether
# a submission works, and their times vary by more than it could tell.
CONTROLLED_S = 1.0
FEW_SAMPLES, BRIEF_SAMPLES = 8, 4  # at least: in each of several launches, and in brief
MOST_KEPT_BYTES = 16 << 30  # of a device: so that ranks seldom give memory back, which the next call would feel


@dataclass(frozen=True, kw_only=True)
class OpPlan(Plan):
    """With an `opponent` the baseline ranks run it in place of the reference. `cuda_is_cpu`: "cuda" means the CPU to
    all ranks. `confined`: whether ranks that nobody trusts are. `hidden` are folders that those may not see.
    `in_flight_bytes`: how much of a device inputs may take, if several are made at a time. `kept_bytes`: how much of it
    each group may keep while another is on turn. `is_control`: the reference takes the submission's place.
    `is_reference`: the submission is the reference, by its text. `preload` is as in ranks.launch.Launch."""

    budget: Budget
    threads: int
    cores: tuple[tuple[int, ...], ...]
    spin: bool
    clocks: tuple[Clock, ...]
    cuda_is_cpu: bool = False
    in_flight_bytes: int = IN_FLIGHT_BYTES
    kept_bytes: int = MOST_KEPT_BYTES
    hidden: tuple[Path, ...] = ()
    is_control: bool = False
    is_reference: bool = False
    preload: tuple[str, ...] = ()

    @property
    def is_stepped(self) -> bool:
        """Whether the device's clock ranks, by stepped calls (ranks.stepped): tried only on one machine's CUDA GPUs."""
        return self.clocks[0] == "device"

    def key(self, *place: int | str) -> int:
        """The key that masks one input: above 0, of KEY_BITS bits."""
        return int.from_bytes(self.digest(("key", *place), 8), "big") % ((1 << KEY_BITS) - 1) + 1

    def hidden_seed(self, *place: int | str) -> str:
        """SECRET_BITS bits in hex, from which to draw what no candidate may foresee; no seed tells anything of them."""
        return self.digest(("hidden", *place), SECRET_BITS // 8).hex()


def make_plan(order: Order, cuda_is_cpu: bool = False, notes: tuple[Warning, ...] = ()) -> OpPlan:
    """The plan of one evaluation on this machine. One that ranks, or that times two files head to head, may have
    several launches, on one machine. Raises UsageError where the ranks cannot fit."""
    setting, device = order.setting, order.setting.device
    is_apart, is_ranked = setting.nodes > 1, order.mode == "leaderboard"
    launches = setting.launches if (is_ranked or order.opponent is not None) and not is_apart else 1
    is_timed_long = setting.suite.benchmark_s >= CONTROLLED_S
    setting.problem.check_runnable()
    local_size = setting.world_size // setting.nodes
    host.check_memory(local_size)
    host.check_files(setting.world_size)
    host.check_temporary(device)
    spin = cores() > 3 * local_size  # all groups, and one core for the parent
    plan = planned(
        OpPlan,
        order,
        budget=Budget(
            seconds=setting.suite.benchmark_s / launches,
            min_samples=BRIEF_SAMPLES if setting.is_brief else FEW_SAMPLES if launches > 1 else MIN_SAMPLES,
            burst=device != "cpu",
            block=block(device),
        ),
        launches=launches,
        has_controls=device == "cpu" and is_ranked and order.opponent is None and not is_apart and is_timed_long,
        secret=secrets.randbits(SECRET_BITS),
        threads=max(1, cores() // local_size),
        # The same for the rank of either side: a process keeps for life what its cores are worth to its device.
        cores=host.near_cores(local_size) if spin else (),
        spin=spin,
        clocks=ON_NODES if is_apart else CLOCKS[device],
        cuda_is_cpu=cuda_is_cpu,
        notes=notes,
    )
    if order.opponent is not None:
        return plan
    return replace(plan, phases=tuple(map(partial(_with_drawn, plan), plan.phases)))


def _with_drawn(plan: OpPlan, phase: Phase) -> Phase:
    """The phase with drawn shapes behind its benchmarks, and with as much more time; two files that meet have none."""
    if phase.then != "measure":
        return phase
    cases = drawn_cases(plan.problem, plan.suite, plan.hidden_seed("drawn"))
    longer = 1 + len(cases) / len(phase.cases)
    return replace(phase, cases=(*phase.cases, *cases), limit_s=phase.limit_s * longer)
