# library: torch DDP
"""llama_lora with the reference's model in DistributedDataParallel, which sums gradients up while the backward pass
goes on, and fused AdamW.
"""

import model
import torch
from task import Config, Data, Log, Weights
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class MeanLoss(nn.Module):
    """The adapted model's loss over a rank's targets, in nats a token. DDP averages its gradients over ranks."""

    def __init__(self, size: model.Size, config: Config) -> None:
        super().__init__()
        self.size, self.config, self.names = size, config, list(config["start"])
        self.parts = nn.ParameterList(weight.clone() for weight in config["start"].values())

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        adapted = model.adapted(self.config["base"], self.weights, self.config["scale"])
        return model.summed_loss(self.size, adapted, inputs, targets) / targets.numel()

    @property
    def weights(self) -> Weights:
        return dict(zip(self.names, self.parts, strict=True))


def train(config: Config, data: Data, seed: int, target: float, log: Log) -> Weights:
    size = model.Size(**{name: config[name] for name in model.Size.__dataclass_fields__})
    batch_size = config["batch_size"]
    rate = model.rate_of(size, config["learning_rate"])
    whole = MeanLoss(size, config)
    loss = DistributedDataParallel(whole, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(whole.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    for done in range(batch_size, config["samples"] + 1, batch_size):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, done / config["warmup_samples"])
        optimizer.zero_grad()
        loss(*data.batch(batch_size)).backward()
        optimizer.step()
        if done % config["evaluate_every"] == 0:
            log.evaluate(whole.weights, done)
    return whole.weights
