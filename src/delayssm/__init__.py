"""Delay state-space models for PyTorch: exact FFT training, exact streaming."""

from delayssm.backends import backend
from delayssm.layers.block import Block
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.optim import param_groups
from delayssm.layers.ssm import DelaySSM, DiagonalSSM
from delayssm.layers.stack import Stack
from delayssm.models.token import TokenModel

__all__ = ["DS4D", "S4D", "Block", "DelaySSM", "DiagonalSSM", "Stack", "TokenModel", "backend", "param_groups"]
__version__ = "0.1.0"
