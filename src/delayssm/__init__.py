"""Delay state-space models for PyTorch: exact FFT training, exact streaming."""

from delayssm.backends import backend
from delayssm.layers.block import Block
from delayssm.layers.inputs import Tokens, Values
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.optim import param_groups
from delayssm.layers.ssm import DelaySSM, DiagonalSSM
from delayssm.layers.stack import Stack
from delayssm.models.matching import match_width
from delayssm.models.pooled import PairModel, PooledModel
from delayssm.models.token import TokenModel

__all__ = [
    "DS4D",
    "S4D",
    "Block",
    "DelaySSM",
    "DiagonalSSM",
    "PairModel",
    "PooledModel",
    "Stack",
    "TokenModel",
    "Tokens",
    "Values",
    "backend",
    "match_width",
    "param_groups",
]
__version__ = "0.1.0"
