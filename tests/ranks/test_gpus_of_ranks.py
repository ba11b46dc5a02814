"""What changes from launch to launch of the same ranks."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.ranks import wire
from harness.ranks.launch import Launch
from harness.ranks.roles import gpus_of
from harness.ranks.zygotes import ROLES


def launch(world_size: int) -> Launch:
    return Launch(world_size=world_size, device="cuda", threads=1, spin=False, folder=Path("first"))


def test_in_each_launch_a_rank_has_another_gpu_until_it_has_had_all() -> None:
    first = launch(4)
    later = [first]
    for number in range(2, 6):
        later.append(later[-1].again(Path(str(number))))
    shown = [gpus_of(one.order("candidate", 0), "") for one in later]
    assert shown[0] == shown[4] == ["0", "1", "2", "3"]
    for rank in range(4):
        assert {gpus[rank] for gpus in shown} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("role", ROLES)
def test_all_ranks_of_all_groups_have_the_same_gpus_in_the_same_order(role: wire.Role) -> None:
    second = launch(2).again(Path("2"))
    assert [gpus_of(second.order(role, rank), "5, 3,7") for rank in range(2)] == 2 * [["3", "5"]]


def test_on_nodes_gpus_change_within_each_node() -> None:
    order = replace(launch(4).again(Path("2")).order("candidate", 3), local_size=2)
    assert gpus_of(order, "GPU-aaaa,GPU-bbbb") == ["GPU-bbbb", "GPU-aaaa"]


def test_one_rank_sees_one_gpu() -> None:
    assert gpus_of(launch(1).again(Path("2")).order("trusted", 0), "2,3") == ["2"]
