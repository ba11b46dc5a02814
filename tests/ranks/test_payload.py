"""Inputs and outputs on their way between processes: they arrive bit by bit, and what is declared falsely does not."""

import gc
import mmap
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch

from harness.ranks import exchange, payload, wire
from harness.ranks.shared_buffer import FileBuffer, LoadedFile, sealed_file


@dataclass
class Config:
    """Any class of a problem's task.py."""

    dtype: torch.dtype
    table: torch.Tensor


@pytest.fixture
def buffer() -> Iterator[FileBuffer]:
    fd = os.memfd_create("buffer")
    yield FileBuffer(fd)
    os.close(fd)


def read_output(buffer: FileBuffer, output: wire.Output) -> torch.Tensor | None:
    return payload.viewed(output, buffer.read(output.offset, output.nbytes))


def test_a_tree_with_tensors_in_any_place_arrives_as_it_was(buffer: FileBuffer) -> None:
    """Also tensors within objects, strided, empty, without dimensions, and the same one twice."""
    shared = torch.arange(6, dtype=torch.int32)
    tree = (
        Config(dtype=torch.float16, table=torch.randn(3, 5).bfloat16()),
        {"strided": torch.randn(4, 6).T, "empty": torch.empty(0, 7), "scalar": torch.tensor(2.5, dtype=torch.float64)},
        [shared, shared, None, 3],
    )
    buffer.write(0, torch.ones(1000))  # something before it
    made = payload.write_input(buffer, 4000, tree)
    config, named, (first, second, nothing, three) = payload.read_input(LoadedFile(buffer.fd), made)
    assert config.dtype is torch.float16
    assert torch.equal(config.table, tree[0].table)
    for name, tensor in tree[1].items():
        assert named[name].dtype == tensor.dtype
        assert torch.equal(named[name], tensor)
    assert torch.equal(first, shared)
    assert torch.equal(second, shared)
    assert (nothing, three) == (None, 3)


@pytest.mark.parametrize("key", [0, 77])
def test_a_tensor_keeps_its_requires_grad_and_its_plain_attributes(buffer: FileBuffer, key: int) -> None:
    """Kernels look at such attributes (`is_shuffled` of weights, say); any object that is one is left out."""
    weight = torch.randn(4, 6).T.requires_grad_()
    weight.is_shuffled, weight.block, weight.owner = True, 128, object()  # type: ignore[attr-defined]
    masked: list[tuple[torch.Tensor, int]] = []
    made = payload.write_input(buffer, 0, [weight, torch.ones(3)], key)
    read, plain = payload.read_input(LoadedFile(buffer.fd), made, masked)
    for tensor, place in masked:
        payload.mask(tensor, key, place)
    for found in (read, payload.copied([weight])[0]):
        assert torch.equal(found, weight)
        assert found.requires_grad
        assert found.is_leaf
        assert vars(found) == {"is_shuffled": True, "block": 128}
    assert (plain.requires_grad, vars(plain)) == (False, {})


def test_reading_twice_gives_two_copies(buffer: FileBuffer) -> None:
    """What a submission does to its inputs is gone with them."""
    made = payload.write_input(buffer, 0, torch.zeros(8))
    first = payload.read_input(LoadedFile(buffer.fd), made)
    first.fill_(9)
    assert payload.read_input(LoadedFile(buffer.fd), made).sum() == 0


def test_end_of_says_what_write_input_will_take(buffer: FileBuffer) -> None:
    tree = [torch.zeros(3), torch.zeros(1000, dtype=torch.uint8)]
    assert payload.end_of(tree, 512) == 512 + payload.write_input(buffer, 512, tree).nbytes


def test_nbytes_of_says_what_write_output_will_take(buffer: FileBuffer) -> None:
    tree = {"a": (torch.zeros(3), 5), "b": [torch.zeros(1000, dtype=torch.uint8), "x"], "c": object}
    assert payload.nbytes_of(tree) == payload.write_output(buffer, 0, tree, 1 << 20).nbytes == 256 + 1024


class Sub(torch.Tensor):
    pass


def test_an_output_is_described_for_what_it_is(buffer: FileBuffer) -> None:
    assert payload.write_output(buffer, 0, torch.ones(2, 3), 100).kind == "torch.Tensor"
    assert payload.write_output(buffer, 0, torch.ones(2, 3).as_subclass(Sub), 100).kind.endswith("Sub")
    assert payload.write_output(buffer, 0, None, 100).kind == "None"
    assert payload.write_output(buffer, 0, [1], 100).note == "not a tensor"
    assert "more than any right result" in payload.write_output(buffer, 0, torch.ones(100), 100).note
    assert "layout" in payload.write_output(buffer, 0, torch.ones(2, 2).to_sparse(), 100).note


def test_an_output_arrives_also_from_a_view(buffer: FileBuffer) -> None:
    view = torch.randn(8, 4).T
    output = payload.write_output(buffer, 256, view, 1000)
    assert torch.equal(read_output(buffer, output), view)


@pytest.mark.parametrize(
    "lie",
    [
        {"dtype": "torch.nonsense"},
        {"dtype": "torch.float64"},
        {"shape": (2, 4)},
        {"shape": (-2, -3)},
        {"shape": (1 << 40, 1 << 40)},
        {"shape": (0, 1 << 63), "nbytes": 0},
        {"shape": (1 << 62, 1 << 62, 0), "nbytes": 0},
        {"shape": (1 << 40,), "nbytes": 4 << 40},
        {"nbytes": 8},
        {"offset": 1 << 40},
        {"offset": -8},
        {"note": "none"},
    ],
)
def test_an_output_that_does_not_fit_its_declaration_is_none(lie: dict, buffer: FileBuffer) -> None:
    output = payload.write_output(buffer, 0, torch.ones(2, 3), 1000)
    assert read_output(buffer, replace(output, **lie)) is None


def test_a_masked_input_is_noise_until_it_is_unmasked(buffer: FileBuffer) -> None:
    """To the last byte, whatever the dtype; the pickle without tensors is not masked."""
    tree = {
        "bytes": torch.zeros(1003, dtype=torch.uint8),
        "halves": torch.zeros(5, 7, dtype=torch.bfloat16).T,
        "bools": torch.zeros(900, dtype=torch.bool),
        "one": torch.tensor(7, dtype=torch.int64),
        "empty": torch.empty(0, 3),
        "number": 5,
    }
    made = payload.write_input(buffer, 512, tree, key=12345)
    masked: list[tuple[torch.Tensor, int]] = []
    read = payload.read_input(LoadedFile(buffer.fd), made, masked)
    assert len(masked) == 5
    assert len(read["bytes"].unique()) > 200
    assert not torch.equal(read["one"], tree["one"])
    for tensor, place in masked:
        payload.mask(tensor, 12345, place)
    for name, value in tree.items():
        assert torch.equal(read[name], value) if isinstance(value, torch.Tensor) else read[name] == value
    assert tree["bytes"].sum() == 0, "what was made stays as it is"


def test_every_key_and_place_has_noise_of_its_own() -> None:
    noise = [torch.zeros(64, dtype=torch.int64) for _ in range(3)]
    for tensor, (key, place) in zip(noise, [(1, 0), (2, 0), (1, 256)], strict=True):
        payload.mask(tensor, key, place)
    assert not any(torch.equal(noise[a], noise[b]) for a, b in [(0, 1), (0, 2), (1, 2)])
    assert (noise[0] < 0).any(), "the highest bit too"


def test_nobody_can_change_a_sealed_file() -> None:
    fd, made = sealed_file("input", lambda buffer: payload.write_input(buffer, 512, torch.arange(5.0)))
    for attempt in (
        lambda: os.truncate(fd, 0),
        lambda: os.pwrite(fd, b"x", 512),
        lambda: mmap.mmap(fd, 512),
    ):
        with pytest.raises(PermissionError):
            attempt()
    assert torch.equal(payload.read_input(LoadedFile(fd), made), torch.arange(5.0))
    os.close(fd)


def test_a_file_that_could_not_be_filled_is_closed() -> None:
    open_before = os.listdir("/proc/self/fd")
    with pytest.raises(ZeroDivisionError):
        sealed_file("input", lambda buffer: 1 // 0)
    assert os.listdir("/proc/self/fd") == open_before


def test_a_copy_does_not_keep_the_original() -> None:
    """On a device it is GiB, which no garbage collector hurries to give back."""
    gc.disable()
    try:
        data = torch.ones(8)
        memory = weakref.ref(data.untyped_storage())
        copy = payload.copied([data])
        del data
        assert memory() is None
        assert torch.equal(copy[0], torch.ones(8))
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\1" * 7,
        bytes(8),
        b"\x7f" + bytes(7),
        b"{}" + (2).to_bytes(8),
        b"no" + (2).to_bytes(8),
        b"[" * 100_000 + (100_000).to_bytes(8),
    ],
)
def test_what_says_falsely_or_not_at_all_what_it_is_is_no_output(content: bytes, buffer: FileBuffer) -> None:
    os.pwrite(buffer.fd, content, 0)
    nothing = exchange.described(buffer)
    assert payload.read_tree(buffer, nothing, 1 << 20)[0] is None
    assert read_output(buffer, nothing) is None
    assert "nothing describes" in nothing.kind


def test_what_an_output_is_stands_in_its_own_file(buffer: FileBuffer) -> None:
    """What a later message says is not what is judged."""
    value = {"loss": 0.5, "weights": torch.arange(6).reshape(2, 3)}
    output = exchange.write_described(buffer, value, 1 << 20)
    assert exchange.described(buffer) == output
    read, lacking = payload.read_tree(buffer, exchange.described(buffer), 1 << 20)
    assert (read["loss"], read["weights"].tolist(), lacking) == (0.5, [[0, 1, 2], [3, 4, 5]], "")


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6).reshape(2, 3),
        torch.randn(4, 6).bfloat16().T,
        torch.randn(3).requires_grad_(),
        torch.tensor(2.5),
        torch.empty(0, 7),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(4, 4).to_sparse(),
    ],
    ids=["plain", "strided", "with gradient", "scalar", "empty", "conjugate", "sparse"],
)
def test_a_plain_tensor_is_handed_over_in_fewer_steps_and_as_any_other(value: torch.Tensor, buffer: FileBuffer) -> None:
    output = exchange.write_described(buffer, value, 1 << 20)
    other = os.memfd_create("other")
    assert output == payload.write_output(FileBuffer(other), 0, value, 1 << 20) == exchange.described(buffer)
    read = read_output(buffer, output)
    assert read is None if value.is_sparse else read is not None and torch.equal(read, value)
    os.close(other)


def test_a_plain_tensor_that_is_too_large_is_not_written(buffer: FileBuffer) -> None:
    assert "more than any right result" in exchange.write_described(buffer, torch.ones(100), 399).note


def test_tensors_of_one_input_have_memory_of_their_own(buffer: FileBuffer) -> None:
    """A submission may resize one, or look at its storage."""
    made = payload.write_input(buffer, 0, [torch.zeros(3), torch.ones(5)])
    first, second = payload.read_input(LoadedFile(buffer.fd), made)
    assert [one.untyped_storage().nbytes() for one in (first, second)] == [12, 20]
    first.fill_(7)
    assert second.tolist() == [1.0] * 5


@pytest.mark.parametrize("value", [torch.arange(7.0), (torch.arange(3), [2.5, torch.ones(2, 2)]), None])
@pytest.mark.parametrize("reserved", [0, 1 << 16])
def test_memory_that_a_file_has_ahead_is_cut_off_where_it_is_not_needed(value: object, reserved: int) -> None:
    """Else the description would not be the last thing in it. The memory is there before anything is written."""
    buffer = FileBuffer(os.memfd_create("a test"), reserved)
    assert os.fstat(buffer.fd).st_blocks * 512 >= reserved
    output = exchange.write_described(buffer, value, 1 << 20)
    assert exchange.described(buffer) == output
    assert os.fstat(buffer.fd).st_size == buffer.end < 1 << 16
    os.close(buffer.fd)


def test_an_input_is_read_into_the_room_that_is_there_for_it(buffer: FileBuffer) -> None:
    payload.write_input(buffer, 0, torch.arange(5.0))
    for nbytes, fits in ((1 << 10, True), (8, False)):
        room = torch.zeros(nbytes, dtype=torch.uint8)
        loaded = LoadedFile(buffer.fd, room)
        assert torch.equal(payload.read_input(loaded, None), torch.arange(5.0))
        assert bool(room.any()) == fits
