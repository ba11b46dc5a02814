# library: Liger-Kernel
"""swiglu by Liger-Kernel's kernels for gates and values that lie in one tensor. GPUs only."""

from task import input_t, output_t

try:
    from liger_kernel.ops.swiglu import swiglu_fused_gate_up_backward, swiglu_fused_gate_up_forward
except ImportError as error:
    raise ImportError(f"Liger-Kernel is not installed ({error}): pip install -e '.[peers]'") from None


def custom_kernel(data: input_t) -> output_t:
    x_M2F, grad_MF = data
    if x_M2F.device.type == "cpu":
        raise RuntimeError("Liger-Kernel's kernels need a GPU; on CPUs run submission.py or reference.py")
    if grad_MF is None:
        return swiglu_fused_gate_up_forward(x_M2F)[1]
    return swiglu_fused_gate_up_backward(x_M2F, grad_MF)
