"""Delay state-space models for PyTorch: exact FFT training, exact streaming."""

from delayssm.allocator import keep_freed_memory
from delayssm.backends import backend
from delayssm.config import Config
from delayssm.layers.block import Block
from delayssm.layers.checks import check_finite
from delayssm.layers.delay_ssm import DelaySSM
from delayssm.layers.delta_memory import DeltaMemory
from delayssm.layers.diagonal_ssm import DiagonalSSM
from delayssm.layers.inputs import Tokens, Values
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.optim import Rule, param_groups
from delayssm.layers.stack import Stack
from delayssm.layers.streaming import Streaming
from delayssm.models.matching import match_width
from delayssm.models.pooled import PairModel, PooledModel
from delayssm.models.series import SeriesModel
from delayssm.models.token import TokenModel
from delayssm.storage.pretrained import Pretrained
from delayssm.suggestion import DelayEvidence, delay_evidence, suggest_delays
from delayssm.system.spans import Spans

__all__ = [
    "DS4D",
    "S4D",
    "Block",
    "Config",
    "DelayEvidence",
    "DelaySSM",
    "DeltaMemory",
    "DiagonalSSM",
    "PairModel",
    "PooledModel",
    "Pretrained",
    "Rule",
    "SeriesModel",
    "Spans",
    "Stack",
    "Streaming",
    "TokenModel",
    "Tokens",
    "Values",
    "backend",
    "check_finite",
    "delay_evidence",
    "keep_freed_memory",
    "match_width",
    "param_groups",
    "suggest_delays",
]
__version__ = "0.1.0"
