# library: Liger-Kernel
"""cross_entropy by Liger-Kernel's kernel, which writes the gradient over the logits. GPUs only.

The kernel is started here and not by its function cross_entropy_forward: that returns losses in the dtype of the
logits, which is coarser than what is asked for, and waits for the device to count tokens. The gradient is multiplied by
the loss scale in a pass of its own, as its backward pass does.
"""

import torch
import triton
from task import input_t, output_t

try:
    from liger_kernel.ops.cross_entropy import MAX_FUSED_SIZE, liger_cross_entropy_kernel
except ImportError as error:
    raise ImportError(f"Liger-Kernel is not installed ({error}): pip install -e '.[peers]'") from None


def custom_kernel(data: input_t) -> output_t:
    logits_MV, targets_M, ignore_index, smoothing, scale = data
    if logits_MV.device.type == "cpu":
        raise RuntimeError("Liger-Kernel's kernels need a GPU; on CPUs run submission.py or reference.py")
    tokens, vocab = logits_MV.shape
    losses_M = torch.zeros(tokens, dtype=torch.float32, device=logits_MV.device)
    liger_cross_entropy_kernel[(tokens,)](
        X_ptr=logits_MV,
        X_stride=logits_MV.stride(0),
        Y_ptr=targets_M,
        Y_stride=targets_M.stride(0),
        weight_ptr=None,
        loss_ptr=losses_M,
        z_loss_ptr=None,
        loss_stride=1,
        token_accuracy_ptr=None,
        token_accuracy_stride=0,
        predicted_tokens_ptr=None,
        predicted_tokens_stride=0,
        n_cols=vocab,
        n_non_ignore=1,  # counts in means alone
        sum_non_ignore_weight=1,
        weight_sum=0.0,
        ignore_index=ignore_index,
        lse_square_scale=0.0,
        label_smoothing=smoothing,
        reduction="none",
        softcap=None,
        RETURN_Z_LOSS=False,
        RETURN_TOKEN_ACCURACY=False,
        RETURN_PREDICTED_TOKENS=False,
        BLOCK_SIZE=min(MAX_FUSED_SIZE, triton.next_power_of_2(vocab)),
        HAS_WEIGHT=False,
        HAS_SOFTCAPPING=False,
        HAS_GRADIENTS=True,
        num_warps=16 if torch.version.hip else 32,
    )
    return losses_M, logits_MV.mul_(scale / (targets_M != ignore_index).sum())
