"""Wrong input is an error that shows the value and says what to do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from delayssm import (
    DS4D,
    S4D,
    Block,
    DelaySSM,
    DiagonalSSM,
    PairModel,
    PooledModel,
    Spans,
    Stack,
    TokenModel,
    backend,
    check_finite,
)
from delayssm.layers.norms import BatchNorm
from tests.contracts.modules import Build
from tests.support.numerics import relative_rms

H = 4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DelaySSM(0), "d_model must be at least 1, not 0"),
        (lambda: DelaySSM(H, 7), "d_state must be even .* not 7"),
        (lambda: DiagonalSSM(H, 0), "d_state must be even .* not 0"),
        (lambda: DelaySSM(H, 8, 2), "max_delay must be at least 3, .* not 2"),
        (
            lambda: DelaySSM(H, 8, 100, delays=0.5),
            r"0.5 steps is outside \[1, 99\]; raise max_delay \(now 100\)",
        ),
        (lambda: DelaySSM(H, 8, 100, delays=[1.0, 2.0, 3.0, 99.5]), r"99.5 steps is outside \[1, 99\]"),
        (lambda: DelaySSM(H, 8, delays=float("nan")), "nan steps is outside"),
        (lambda: DelaySSM(H, 8, delays=[1.0, 2.0]), r"one per channel \(4\), not 2 numbers"),
        (lambda: DelaySSM(H, 8, delays="random"), "delays must be .* not 'random'"),
        (lambda: DelaySSM(H, 8, init="legs"), "init must be .* not 'legs'"),
        (lambda: DelaySSM(H, 8, input="none"), "input must be .* not 'none'"),
        (lambda: DelaySSM(H, 8, branch_fraction=1.0), r"branch_fraction must lie in \[0, 1\), not 1.0"),
        (lambda: DelaySSM(H, 8, branch_fraction=(0.0, 0.5)), r"a pair \(first, last\) of numbers"),
        (lambda: DelaySSM(H, 8, branch_fraction=[0.1] * 4), r"or a tensor of shape \(4,\), \(4, 1\) or \(4, 4\)"),
        (lambda: DelaySSM(H, 8, branch_fraction=torch.ones(3) / 2), r"\(4, 1\) per channel, or \(4, 4\), not \(1, 3\)"),
        (lambda: DelaySSM(H, 8, branch_fraction=[[0.5], [0.1] * 4, [0.5], [0.5]]), r"not \(4, 1 or 4\)"),
        (lambda: DelaySSM(H, 8, phase=float("inf")), "phase must be a finite angle"),
        (lambda: DelaySSM(H, 8, dt_min=0.1, dt_max=0.01), "dt_min <= dt_max"),
        (lambda: DelaySSM(H, 8, dt_min=0.0), "0 < dt_min"),
        (lambda: DelaySSM(H, 8, contour="circle"), "contour must be .* not 'circle'"),
        (lambda: DS4D(H, 8, dropout=1.0), r"dropout must lie in \[0, 1\), not 1.0"),
        (lambda: Block(S4D(H), norm="rms"), "norm must be .* not 'rms'"),
        (lambda: Stack([]), "at least one block"),
        (lambda: Stack([Block(S4D(2)), Block(S4D(3))]), r"one width, not \[2, 3\]"),
        (lambda: DelaySSM(H).kernel(0), "length must be a whole number of at least 1, not 0"),
        (lambda: DelaySSM(H).init_state(0), "batch_size must be a whole number of at least 1, not 0"),
        (lambda: DelaySSM(H).init_state(1.5), "batch_size must be a whole number of at least 1, not 1.5"),
        (lambda: DelaySSM(H).init_state(1, "long"), "max_length must be a whole number of at least 1, not 'long'"),
        (lambda: DelaySSM(H).init_state(1, 2**63), "max_length can be at most"),
        (
            lambda: TokenModel(9, Stack([Block(DS4D(H, bidirectional=True))])),
            "sees the tokens that this model is to predict; use bidirectional=False",
        ),
        (lambda: backend("cuda"), "no backend is called 'cuda'; there are numba, triton, eager"),
    ],
)
def test_values(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DelaySSM(H, 8, float("nan")), "option max_delay of DelaySSM must be of type int, not nan"),
        (lambda: DelaySSM(H, 8, 10.5), "option max_delay of DelaySSM must be of type int, not 10.5"),
        (lambda: DelaySSM(True), "option d_model of DelaySSM must be of type int, not True"),
        (lambda: DS4D("wide"), "option d_model of DS4D must be of type int, not 'wide'"),
        (lambda: DS4D(H, dropout=None), "option dropout of DS4D must be of type float, not None"),
        (lambda: DelaySSM(H, 8, delays=[[1.0, 2.0]]), "option delays of DelaySSM must be of type"),
        (lambda: DelaySSM(H, 8, branch_fraction="half"), "option branch_fraction of DelaySSM must be of type"),
        (lambda: Stack(Block(DS4D(H))), "takes a list of blocks, not one Block"),
        (lambda: Stack([nn.Linear(H, H)]), "each block must be a module of type Streaming, not Linear"),
        (lambda: Block(nn.Linear(H, H)), "layer must be a module of type Streaming, not Linear"),
        (lambda: TokenModel(9, [Block(DS4D(H))]), "backbone must be a module of type Stack, not list"),
        (lambda: PooledModel(nn.Linear(H, H), Stack([Block(DS4D(H))]), 2), "inputs must be .* not Linear"),
        (lambda: PairModel(Stack([Block(DS4D(H))]), 2), "encoder must be a module of type PooledModel, not Stack"),
        (lambda: DelaySSM(H)([[[0.0] * H]]), "expected a tensor of shape"),
    ],
)
def test_types(build: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        build()


def test_whole_numbers_may_stand_for_others() -> None:
    assert DelaySSM(H, phase=-(2**70)).config.phase == -(2.0**70)
    assert type(DelaySSM(H, phase=3).config.phase) is float
    with pytest.raises(ValueError, match="phase must be a finite angle in radians, not inf"):
        DelaySSM(H, phase=10**400)


def test_numbers_of_other_libraries_are_numbers() -> None:
    assert DelaySSM(np.int64(H), np.int32(8), delays=np.full(H, 5.0)).config == DelaySSM(H, 8, delays=[5.0] * H).config


@pytest.mark.parametrize("cls", [DS4D, S4D])
def test_unknown_options(cls: type) -> None:
    with pytest.raises(TypeError, match="branch_fractoin"):
        cls(H, branch_fractoin=0.1)
    with pytest.raises(TypeError, match="takes a configuration alone"):
        cls(cls(H).config, dropout=0.1)


@pytest.mark.parametrize(
    "build",
    [
        lambda: DelaySSM(H, 8, 30),
        lambda: S4D(H, 8),
        lambda: Block(DS4D(H, 8, 30)),
        lambda: Block(DS4D(H, 8, 30), norm="batch", prenorm=False).eval(),
        lambda: Stack([Block(S4D(H, 8))]),
    ],
)
def test_inputs(build: Build) -> None:
    module = build()
    x = torch.randn(2, 5, H)
    for wrong, kind, message in (
        (x[0], ValueError, r"\(batch, length, 4\), not \(5, 4\)"),
        (x[..., :3], ValueError, "width 3, but this module has d_model = 4"),
        (x.double(), TypeError, "float64, but the parameters of this module are torch.float32"),
        (x.long(), TypeError, "int64, but the parameters"),
        (x.half(), TypeError, r"float16, but the parameters .* or torch\.autocast"),
    ):
        if wrong.dtype == torch.float16 and isinstance(module, DiagonalSSM):
            continue  # it computes in float32 whatever it is given
        for call in (lambda w=wrong: module(w), lambda w=wrong: module.stream(w, module.init_state(2))):
            with pytest.raises(kind, match=message):
                call()
    with pytest.raises(ValueError, match="step takes one token per row"):
        module.step(x, module.init_state(2))
    with pytest.raises(TypeError, match=r"positions must be a tensor of whole numbers, .* not list"):
        module(x, at=[[0], [1]])
    for lengths, message in (
        ([5, 6], r"between 0 and 5, the length of x, not \[5, 6\]"),
        ([-1, 5], "between 0 and 5"),
        ([5], r"shape \(2,\), not torch.int64 of shape \(1,\)"),
        (torch.tensor([1.0, 2.0]), "whole number"),
        (Spans(torch.tensor([5, 6])), r"between 0 and 5, the length of x, not \[5, 6\]"),
        (Spans(torch.tensor([5])), r"shape \(2,\), not torch.int64 of shape \(1,\)"),
        (Spans(torch.tensor([5, 2]), torch.tensor([-1, 0])), r"start <= stop, not start \[-1, 0\] and stop \[5, 2\]"),
        (Spans(torch.tensor([5, 2]), torch.tensor([0, 3])), "0 <= start <= stop"),
    ):
        with pytest.raises(ValueError, match=message):
            module(x, lengths=lengths)
        with pytest.raises(ValueError, match=message):
            module.stream(x, module.init_state(2), lengths=lengths)


def test_states() -> None:
    ssm, other = DelaySSM(H, 8, 30), DelaySSM(H, 8, 30)
    x = torch.randn(2, 5, H)
    with pytest.raises(ValueError, match="another module"):
        ssm.stream(x, other.init_state(2))
    with pytest.raises(ValueError, match="holds 3 streams, but x has 2 rows"):
        ssm.stream(x, ssm.init_state(3))
    state = ssm.init_state(2)
    with torch.no_grad():
        ssm.nu_tau.add_(0.5)
    with pytest.raises(ValueError, match=r"4 delays have moved .* freeze nu_tau"):
        ssm.stream(x, state)
    stack = Stack([Block(S4D(H, 8)), Block(S4D(H, 8))])
    with pytest.raises(ValueError, match="of 1 blocks, but the stack has 2"):
        stack.stream(x, Stack([Block(S4D(H, 8))]).init_state(2))


@pytest.mark.parametrize("name", ["nu_dt", "nu_re", "theta", "C", "D"])
def test_non_finite_parameters(name: str) -> None:
    ssm = DelaySSM(H, 8, 30)
    with torch.no_grad():
        getattr(ssm, name).view(-1)[1] = float("nan")
    for call in (lambda: ssm(torch.randn(1, 5, H)), lambda: ssm.kernel(5), lambda: ssm.init_state(1)):
        with pytest.raises(ValueError, match=rf"DelaySSM.{name} has 1 non-finite values of .* lower the learning rate"):
            call()


def test_finding_non_finite_values() -> None:
    x = torch.zeros(2, 5, H)
    check_finite(x)
    x[1, 3, 2], x[1, 4, 0] = float("inf"), float("nan")
    with pytest.raises(ValueError, match=r"2 of 40 values are not finite; .* row 1, position 3, channel 2"):
        check_finite(x)


@pytest.mark.parametrize(
    "norm",
    [nn.LayerNorm(H, eps=1.0), nn.RMSNorm(H), nn.Identity(), nn.LayerNorm(H, bias=False), BatchNorm(H, momentum=0.5)],
)
def test_a_norm_that_no_configuration_describes(norm: nn.Module, tmp_path: Path) -> None:
    stack = Stack([Block(DS4D(H, 8, 30))])
    stack.blocks[0].norm = norm
    with pytest.raises(ValueError, match=r"a configuration can have the norms .* but this norm is"):
        stack.save_pretrained(tmp_path)


def test_lengths_of_what_has_none() -> None:
    model = TokenModel(20, Stack([Block(DS4D(H, 8, 30))]))
    with pytest.raises(ValueError, match=r"lengths are for the rows of x, .* not \(5,\)"):
        model(torch.zeros(5, dtype=torch.int64), lengths=[5])
    assert DS4D(H, 8, 30)(torch.zeros(0, 5, H), lengths=[]).shape == (0, 5, H)


def test_a_norm_without_parameters() -> None:
    block, x = Block(DS4D(H, 8, 30)), torch.randn(2, 5, H)
    block.norm = nn.LayerNorm(H, elementwise_affine=False)
    assert relative_rms(block.stream(x, block.init_state(2))[0], block(x)) <= 1e-6


def test_streaming_while_training() -> None:
    x = torch.randn(2, 5, H)
    dropout, batch = DS4D(H, 8, 30, dropout=0.1), Block(S4D(H, 8), norm="batch")
    with pytest.raises(RuntimeError, match=r"dropout .* call .eval\(\)"):
        dropout.stream(x, dropout.init_state(2))
    with pytest.raises(RuntimeError, match=r"batch statistics .* call .eval\(\)"):
        batch.stream(x, batch.init_state(2))
