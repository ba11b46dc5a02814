import torch


def generate_input(shape, how: str, power: int, scale: float, seed: int, double: bool = False):
    assert isinstance(shape, tuple)
    assert type(scale) is float
    assert type(power) is int
    torch.manual_seed(seed)
    data = torch.rand(*shape) * scale
    return {"data": data.double() if double else data, "how": how, "power": power}


def ref_kernel(data):
    return (data["data"] ** data["power"]).sum(1 if data["how"] == "rows" else 0)


def check_implementation(data, output):
    expected = ref_kernel(data)
    return "" if torch.allclose(output, expected) else "not the sum of the powers"
