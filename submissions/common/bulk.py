"""What kernels with explicit warps (Hopper) need by the names that the installed Triton has, since 3.6 and 3.9 call it
differently: copies between global and shared memory, other views of that, and the barrier of a partition's warps."""

from triton._C.libtriton import ir
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import _unwrap_if_constexpr, builtin
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import tma


@builtin
def _add(desc, coord, source, _semantic=None):
    """Triton 3.6 has the operation, but no name for it."""
    places = _semantic._convert_to_ir_values(coord, require_i64=False)
    _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, desc.handle, places, source.handle)


@builtin
def bulk_view(block, dtype, shape, layout, _semantic=None):
    """A block of shared memory by another dtype, shape and layout."""
    shape = [_unwrap_if_constexpr(size) for size in shape]
    return _semantic.memdesc_reinterpret(block, _unwrap_if_constexpr(dtype), shape, _unwrap_if_constexpr(layout))


# (descriptor, coordinates, barrier that is told, block of shared memory)
bulk_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
# (descriptor, coordinates, block of shared memory); the next too
bulk_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
bulk_add = getattr(tma, "async_atomic_add", None) or _add
partition_barrier = getattr(gl, "thread_barrier", None) or gl.barrier
# (block of shared memory, pointers, mask): every thread copies what of it is its own
copy_ahead = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
