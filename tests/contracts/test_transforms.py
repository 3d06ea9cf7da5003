"""Layers under everything that torch can do to a function: `torch.func`, forward mode, derivatives of derivatives."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, stack_module_state, vmap

from delayssm import DS4D, Block, DelaySSM, DeltaMemory, DiagonalSSM, Stack, TokenModel
from tests.support.numerics import relative_rms

H = 3
MODULES: dict[str, Callable[[], nn.Module]] = {
    "DelaySSM": lambda: DelaySSM(H, 4, 9, dtype=torch.float64),
    "DelaySSM, bidirectional": lambda: DelaySSM(H, 4, 9, bidirectional=True, dtype=torch.float64),
    "DiagonalSSM": lambda: DiagonalSSM(H, 4, dtype=torch.float64),
    "DeltaMemory": lambda: DeltaMemory(H, head_size=2, dtype=torch.float64),
    "Block": lambda: Block(DS4D(H, 4, 9, dtype=torch.float64)),
}
every_module = pytest.mark.parametrize("build", MODULES.values(), ids=MODULES.keys())
Parameters = dict[str, Tensor]


def _function(module: nn.Module, x: Tensor) -> Callable[[Parameters], Tensor]:
    return lambda parameters: functional_call(module, parameters, (x,))


@every_module
def test_second_derivatives(build: Callable[[], nn.Module]) -> None:
    """Autograd's second derivatives agree with differences of the first ones."""
    module, x = build(), torch.randn(1, 5, H, dtype=torch.float64, requires_grad=True)
    names, values = zip(*module.named_parameters(), strict=True)

    def output(x: Tensor, *values: Tensor) -> Tensor:
        return functional_call(module, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradgradcheck(output, (x, *values), fast_mode=True)


@every_module
def test_forward_mode_is_reverse_mode(build: Callable[[], nn.Module]) -> None:
    module, x = build(), torch.randn(1, 6, H, dtype=torch.float64)
    assert torch.allclose(jacfwd(module)(x), jacrev(module)(x))
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    forwards, backwards = (jacobian(_function(module, x))(parameters) for jacobian in (jacfwd, jacrev))
    for name in parameters:
        assert torch.allclose(forwards[name], backwards[name]), name
    direction = torch.randn_like(x)
    _, tangent = jvp(module, (x,), (direction,))
    assert torch.allclose(tangent, torch.einsum("abcdef,def->abc", jacrev(module)(x), direction))
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(module(forward_ad.make_dual(x, direction)))
        assert torch.allclose(dual.tangent, tangent)


def test_gradients_of_each_sample() -> None:
    model, x = Stack([Block(DS4D(H, 4, 9))]), torch.randn(5, 20, H)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: Parameters, x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x.unsqueeze(0),)).square().sum()

    each = vmap(grad(loss), (None, 0))(parameters, x)
    for i in range(len(x)):
        alone = torch.autograd.grad(model(x[i : i + 1]).square().sum(), list(model.parameters()))
        for name, expected in zip(parameters, alone, strict=True):
            assert relative_rms(each[name][i], expected) <= 1e-5, name


def test_an_ensemble() -> None:
    models = [Block(DS4D(H, 4, 9)).eval() for _ in range(3)]
    x = torch.randn(2, 20, H)
    parameters, buffers = stack_module_state(models)
    options = {name: buffer[0] for name, buffer in buffers.items()}  # the same for all

    def output(parameters: Parameters) -> Tensor:
        return functional_call(models[0], (parameters, options), (x,))

    together = vmap(output)(parameters)
    for one, model in zip(together, models, strict=True):
        assert relative_rms(one, model(x)) <= 1e-6


def test_what_has_no_such_formula_is_refused() -> None:
    ssm, x = DelaySSM(H, 4, 9), torch.randn(1, 5, H)
    with pytest.raises(RuntimeError, match=r"a stream cannot be transformed by torch\.func .* use forward"):
        jvp(lambda x: ssm.stream(x, ssm.init_state(1))[0], (x,), (x,))
    x.requires_grad_()
    y, _ = ssm.stream(x, ssm.init_state(1))
    with pytest.raises(RuntimeError, match="a stream cannot be differentiated twice; use forward"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)
    model = TokenModel(9, Stack([Block(DS4D(H, 4, 9))])).eval()
    refused = pytest.raises(RuntimeError, match="cannot follow these operators")
    with pytest.warns(DeprecationWarning, match="trace"), refused:
        torch.jit.trace(model, torch.zeros(1, 4, dtype=torch.int64))
