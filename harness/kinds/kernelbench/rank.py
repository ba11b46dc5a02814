"""A KernelBench problem as ranks run it: inputs, reference, judge, and how a submission's ModelNew is called.

An input is a dict: `inputs` are get_inputs()'s, `sizes` the file's constants by name, `weights` the seed that
parameters are made from, `is_varied` whether constant ones vary, `seed` that of what a model draws in a call (dropout),
`device` where all of it is.
KernelBench's own verdict is torch.allclose with atol = rtol = 1e-4 for float32 and 1e-2 for 16 bits
(src/kernelbench/eval.py, get_tolerance_for_precision, read 2026-11).
"""

import importlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from harness.kinds.benchmarks import rank_judging as judging

MODULE = "problem_file"  # the problem's own file, as it is staged
PUBLISHED_SEED = 42  # KernelBench's seed_num
OTHER_DRAWS = 2  # of a seed's bits: a weight that is drawn with the input's own seed is a multiple of the input
OTHER_PARAMETERS = (
    "ModelNew's parameters and buffers ({}) have other names or shapes than Model's ({}): they are not copied from "
    "Model, and what the same seed gave them is not what Model has"
)
UNSTEADY = (
    "Model's result is another in each call with the same inputs, so nothing can be judged: it keeps state in lists or "
    "numbers, say, or draws from a generator that is not torch's; state in tensors is put back before each call"
)
RUNNING = ("running_mean", "running_var", "num_batches_tracked")  # of batch norms, which a call in training ignores
UNIFORM = (torch.rand, torch.rand_like)
NORMAL = (torch.randn, torch.randn_like)
CONVERSIONS = (Tensor.to, Tensor.half, Tensor.bfloat16, Tensor.float, Tensor.double, Tensor.cuda)


def seed_all(seed: int) -> None:
    """Seeds all generators that a file may draw from: KernelBench seeds torch's alone."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def tolerance(dtype: torch.dtype) -> float:
    """KernelBench's, as atol and as rtol."""
    return 1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-4


def problem() -> Any:
    return importlib.import_module(MODULE)


def sized(sizes: Mapping[str, Any], submission: Any = None) -> Any:
    """The problem's module with a case's constants; a submission's module gets the same where it has the problem's."""
    module = problem()
    for name, value in sizes.items():
        was = getattr(module, name, value)
        if was != value:
            setattr(module, name, value)
            own = getattr(submission, name, None)
            if type(own) is type(was) and own == was:
                setattr(submission, name, value)
    return module


def listed(inputs: Any) -> Any:
    """What get_inputs() returned, as a list, tuple or dict. Raises ValueError for a generator or a sparse tensor."""
    if isinstance(inputs, Iterator):
        raise ValueError("get_inputs() is a generator, of several lists of inputs perhaps; have it return one list")
    for tensor in judging.leaves_of(inputs):
        if tensor.layout is not torch.strided:
            raise ValueError(
                f"get_inputs() gives a tensor of layout {tensor.layout}, which ranks cannot exchange; have it give the "
                "dense parts, of which forward makes that tensor"
            )
    return inputs if isinstance(inputs, list | tuple | dict) else [inputs]


def arguments(module: Any) -> tuple[list[Any], dict[str, Any]]:
    """The constructor's arguments of get_init_inputs(): a list, a dict of names, or a list of both."""
    found = module.get_init_inputs()
    if isinstance(found, dict):
        return [], found
    found = list(found)
    if len(found) == 2 and isinstance(found[0], list | tuple) and isinstance(found[1], dict):
        return list(found[0]), found[1]
    return found, {}


def built(make: Callable[..., Any], seed: int, device: torch.device) -> Any:
    """The model that a class makes, with parameters of that seed, on the device. Made on the host, as KernelBench
    does, so that the seed gives the same parameters wherever it runs."""
    with torch.no_grad(), torch.device("cpu"):
        seed_all(seed)
        own, named = arguments(problem())
        seed_all(seed)
        model = make(*own, **named)
    return model.to(device) if isinstance(model, nn.Module) else model


def constants(model: Any) -> dict[tuple[float, int], list[Tensor]]:
    """The parameters whose numbers are all the same, such as a norm's 1 and 0, in order, by that number and count."""
    found: dict[tuple[float, int], list[Tensor]] = {}
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    for one in (parameter.detach() for parameter in parameters):
        if one.is_floating_point() and one.numel() and bool((one == one.flatten()[0]).all()):
            found.setdefault((float(one.flatten()[0]), one.numel()), []).append(one)
    return found


def vary(model: Any, seed: int) -> dict[tuple[float, int], list[Tensor]]:
    """Multiplies each number of the constant parameters by 0.5 to 1.5, or adds -0.5 to 0.5 to zeros. Buffers stay, a
    running variance among them. Returns the new values, by what they were."""
    found, generator = constants(model), torch.Generator("cpu").manual_seed(seed)
    for (value, _), tensors in found.items():
        for tensor in tensors:
            change = torch.rand(tensor.shape, generator=generator, device="cpu").sub_(0.5)
            tensor.copy_(change.add_(1).mul_(value) if value else change)
    return found


def take_over(model: Any, reference: nn.Module, varied: Mapping[tuple[float, int], Sequence[Tensor]]) -> None:
    """Gives the model the reference's parameters and buffers if it has all of them, by name and shape. Otherwise it has
    what the seed gave it, as in KernelBench; its constant parameters get the `varied` values of those that were alike,
    in their order. What differs is printed."""
    own = model.state_dict() if isinstance(model, nn.Module) else {}
    theirs = reference.state_dict()
    if {name: tensor.shape for name, tensor in own.items()} == {name: one.shape for name, one in theirs.items()}:
        if own:
            model.load_state_dict(theirs)
        return
    for alike, tensors in constants(model).items():
        for tensor, value in zip(tensors, varied.get(alike, ()), strict=False):
            tensor.copy_(value.view_as(tensor))
    if len(own) != len(theirs) or not all(map(torch.equal, own.values(), theirs.values())):
        print(OTHER_PARAMETERS.format(", ".join(own) or "none", ", ".join(theirs) or "none"))


class Repeatable:
    """A model whose every call begins as its first one: what a call changes of the model's tensors is put back before
    the next, and where it draws numbers, they are drawn from the call's seed."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.kept = list(_state(model)) if isinstance(model, nn.Module) else []
        self.is_random: bool | None = None  # None before the first call
        self.moved: list[tuple[dict[str, Any], str, Tensor, Tensor]] = []

    def __call__(self, inputs: Any, seed: int) -> Any:
        for holder, name, tensor, copy in self.moved:
            holder[name] = tensor
            tensor.copy_(copy)
        if self.is_random is False:
            return self._called(inputs)
        torch.manual_seed(seed)
        if self.is_random:
            return self._called(inputs)
        before = _generators()
        found = self._called(inputs)
        self.is_random = any(not torch.equal(one, other) for one, other in zip(before, _generators(), strict=True))
        self.moved = [
            (holder, name, tensor, copy)
            for holder, name, tensor, copy, version in self.kept
            if holder.get(name) is not tensor or tensor._version != version
        ]
        self.kept = []
        return found

    def _called(self, inputs: Any) -> Any:
        with torch.no_grad():
            return called_with(self.model, inputs)


def called_with(model: Any, inputs: Any) -> Any:
    """What the model returns for what get_inputs() gave."""
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def _state(model: nn.Module) -> Any:
    """The tensors that a call may change: where they are, what they are, a copy, and how often they were written."""
    for module in model.modules():
        plain = {name for name, value in vars(module).items() if isinstance(value, Tensor)}
        buffers = {name for name, value in module._buffers.items() if value is not None and name not in RUNNING}
        for holder, names in ((vars(module), plain), (module._buffers, buffers)):
            for name in names:
                tensor: Any = holder[name]
                yield holder, name, tensor, tensor.detach().clone(), tensor._version


def _generators() -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states + ([torch.cuda.get_rng_state()] if torch.cuda.is_available() else [])


class CalledModel:
    """A class of models as a kernel: makes the model that an input's parameters are of, keeps it, calls it."""

    def __init__(self, make: Callable[..., Any], takes_over: bool, module: Any = None) -> None:
        self.make, self.takes_over, self.module = make, takes_over, module
        self.made_from: tuple[int, bool] | None = None
        self.model: Repeatable

    def of(self, data: Any) -> Repeatable:
        seed, is_varied = data["weights"], data["is_varied"]
        if self.made_from != (seed, is_varied):
            self.made_from = None
            sized(data["sizes"], self.module)
            device = judging.device_of(data)
            model = built(self.make, seed, device)
            reference = built(problem().Model, seed, device) if self.takes_over else model
            varied = vary(reference, seed) if is_varied else {}
            if self.takes_over:
                take_over(model, reference, varied)
            self.model, self.made_from = Repeatable(model), (seed, is_varied)
        return self.model

    def __call__(self, data: Any) -> Any:
        return judging.flat(self.of(data)(data["inputs"], data["seed"]), judging.device_of(data))


def adapt(submission: Any) -> Any:
    """The kernel that a submission's ModelNew is. Raises AttributeError or TypeError where it defines none."""
    make = judging.defined(submission, "ModelNew", "define it as a class with the constructor and forward of Model")
    if isinstance(make, nn.Module):
        raise TypeError("ModelNew is a model that was made already; define it as the class, like Model")
    return CalledModel(make, takes_over=True, module=submission)


class Draws(TorchFunctionMode):
    """Notes which tensors are torch.rand's or torch.randn's own results, or these in another floating-point dtype of 16
    bits or more: their values are anybody's choice, so that they can be hardened."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[Tensor, bool]] = []  # and whether they are uniform

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in UNIFORM + NORMAL:
            self.drawn.append((found, func in UNIFORM))
        elif func in CONVERSIONS and found is not args[0] and found.is_floating_point() and found.itemsize > 1:
            self.drawn += [(found, is_uniform) for drawn, is_uniform in self.drawn if drawn is args[0]]
        return found

    def free(self, inputs: Any) -> list[tuple[Tensor, bool]]:
        """Those of them that are inputs as they were drawn, and whether they are uniform."""
        own = {id(tensor) for tensor in judging.leaves_of(inputs)}
        return [
            (tensor.detach(), is_uniform)
            for tensor, is_uniform in self.drawn
            if id(tensor) in own and not tensor._version
        ]


class Reference(judging.JudgedReference):
    """The problem's inputs, its reference, and what it says is right."""

    def __init__(self) -> None:
        self.model = CalledModel(problem().Model, takes_over=False)
        super().__init__(self.model)
        self.free: Any = ()
        self.level: int | None = None  # of hardening; None before it is known
        self.is_varied = False  # whether hardened inputs come with other values for constant parameters
        self.weights: int | None = None  # the seed of parameters for hardened inputs
        self.roomy: Any = None  # the sizes that the machine has the memory for
        self.is_checked = False

    def generate_input(self, rank: int, world_size: int, seed: int, **params: Any) -> Any:
        """get_inputs() under that seed. Raises ValueError where the machine has too little memory."""
        device = torch.get_default_device()
        module = sized(params)
        if device.type == "cpu" and self.roomy != params:
            judging.check_memory(*sizes())
            self.roomy = params
        seed_all(seed)
        with torch.no_grad(), Draws() as draws:
            inputs = listed(module.get_inputs())
        self.free = draws.free(inputs)
        inputs = judging.mapped(inputs, lambda tensor: tensor.detach().to(device))
        weights = {"weights": PUBLISHED_SEED, "is_varied": False}
        return {"inputs": inputs, **weights, "seed": seed, "device": device.type, "sizes": params}

    def harden(self, data: Any, seed: int) -> Any:
        """The same with other parameters, the same for all hardened inputs of a process, and with the hardest change of
        its inputs for which the reference's result is finite; constant parameters vary if there is such a change."""
        if self.weights is None:
            self.weights = seed ^ OTHER_DRAWS
        data = data | {"weights": self.weights, "is_varied": self.is_varied}
        free, self.free = self.free, ()
        if self.level is None:
            self.level, self.is_varied = self.hardest(data, free, seed)
        judging.harden_drawn(free, seed, self.level)
        return data | {"is_varied": self.is_varied}

    def hardest(self, data: Any, free: Sequence[tuple[Tensor, bool]], seed: int) -> tuple[int, bool]:
        """The hardest level of inputs, and whether constant parameters vary. The inputs stay as they are."""
        drawn = [tensor.clone() for tensor, _ in free]
        levels = range(judging.HARDEST if free else 0, -1, -1)
        has_constants = bool(constants(self.model.of(data).model))
        for is_varied in (True, False) if has_constants else (False,):
            for level in levels:
                if not level and not is_varied:
                    break
                judging.harden_drawn(free, seed, level)
                is_finite = judging.are_finite(judging.leaves_of(self.right_value(data | {"is_varied": is_varied})))
                for (tensor, _), was in zip(free, drawn, strict=True):
                    tensor.copy_(was)
                if is_finite:
                    return level, is_varied
        return 0, False

    def exact_kernel(self, data: Any) -> judging.Right:
        """What is right. Raises ValueError for a problem whose result is NaN in places, the same whatever its inputs,
        or another in each call."""
        if data["weights"] not in self.judging:  # the seed of parameters, of which one model is kept
            self.judging.clear()
        judge = self.judging_of(data["weights"], data)
        right = judge.right(data["inputs"])
        values = [part.value for part in (right if isinstance(right, tuple) else (right,))]
        if not values:
            raise ValueError("Model returns no tensor, so nothing can be judged; what it writes to its inputs is not")
        if any(bool(some.isnan().any()) for value in values for (some,) in judging.pieces(value)):
            raise ValueError("the result of Model itself is NaN in places, so nothing can be judged")
        if not self.is_checked and data["weights"] == self.weights:
            self.is_checked = True
            self.check_dependence(data, judge, right)
        return right

    def check_dependence(self, data: Any, judge: judging.Judging, right: judging.Right) -> None:
        """Raises ValueError if the result is the same for another input, or another for the same one."""
        other = self.harden(self.generate_input(0, 1, data["seed"] ^ 1, **data["sizes"]), data["seed"] ^ 1)
        if judging.leaves_of(data["inputs"]) and not self.depends(judge, right, other):
            again = map(judging.distance, judge.value(data["inputs"]), judge.value(data["inputs"]))
            raise ValueError(UNSTEADY if max(again) > judging.MOST else judging.SAME)

    def check_implementation(self, data: Any, output: Any) -> tuple[bool, str]:
        """KernelBench's own verdict. What is said of a right output is what is weak about the problem."""
        right = self.right_value(data)
        passed, message = judging.close(output, right, tolerance)
        return passed, judging.weakness(data["inputs"], right, tolerance) if passed else message

    def rounded(self, data: Any, dtype: torch.dtype) -> Any:
        """With parameters in that dtype too."""
        model = self.model.of(data).model
        kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(judging.mapped(kept, lambda tensor: judging.through(tensor, dtype)))
        found = super().rounded(data, dtype)
        model.load_state_dict(kept)
        return found


def sizes(**params: Any) -> tuple[int, int, int]:
    """The bytes of the inputs' tensors, of the results' and of the parameters; 0 where they are known only once these
    are made."""
    module, inputs, results, parameters = sized(params), 0, 0, 0
    try:
        with torch.device("meta"), torch.no_grad():
            given = listed(module.get_inputs())
            inputs = sum(tensor.nbytes for tensor in judging.leaves_of(given))
            own, named = arguments(module)
            model = module.Model(*own, **named)
            parameters = sum(tensor.nbytes for tensor in model.parameters())
            results = sum(tensor.nbytes for tensor in judging.leaves_of(called_with(model, given)))
    except Exception:  # the file's own code, on tensors without values
        pass
    return inputs, results, parameters
