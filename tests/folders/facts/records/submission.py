import torch
from task import Sums, input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    ends = [*data.offsets.tolist()[1:], len(data.values)]
    sums = [data.values[start:end].sum() for start, end in zip(data.offsets.tolist(), ends, strict=True)]
    return Sums(sums=torch.stack(sums), counts=torch.tensor(data.sizes))
