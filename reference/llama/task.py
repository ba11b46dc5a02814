from torch import Tensor

# The model's name (params.CONFIGS); prompts [batch, prompt] int64; shifts [batch, new] int64 in [0, vocab): token t + 1
# of a sequence is (the token with the largest logit of step t + shift t) modulo vocab.
input_t = tuple[str, Tensor, Tensor]
output_t = Tensor  # logits of every step, [batch, new, vocab] float32
