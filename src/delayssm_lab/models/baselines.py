"""Baseline models. All have an embedding, a final norm, and an untied head without bias."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.backends import choice
from delayssm.layers.checks import Positions, check_positions
from delayssm.layers.inputs import Tokens, Values
from delayssm.system.spans import take
from delayssm_lab.models.selective_scan import compiled_scan

if TYPE_CHECKING:
    from transformers import PreTrainedModel


#: What torch's LSTM remembers, None at the beginning.
LSTMState = tuple[Tensor, Tensor] | None


class LSTMModel(nn.Module):
    """LSTM baseline: embedding, LSTM layers, layer norm, head."""

    def __init__(self, vocab_size: int, d_model: int, depth: int) -> None:
        super().__init__()
        self.embedding = Tokens(vocab_size, d_model)
        self.lstm = nn.LSTM(d_model, d_model, depth, batch_first=True)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x: Int[Tensor, "B L"], at: Positions = None) -> Float[Tensor, "B T V"]:
        """Return logits after each token, or only after those at the positions `at` of each row."""
        check_positions(at, x)
        y, _ = self.lstm(self.embedding(x))
        logits: Tensor = self.head(self.norm(take(y, at)))
        return logits


class LSTMSeries(nn.Module):
    """LSTM baseline for signals: linear input layer, LSTM layers, layer norm, head, as in `SeriesModel`.

    A state is the pair that torch's LSTM returns, and None stands for the beginning.
    """

    def __init__(self, features: int, d_model: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.inputs = Values(features, d_model)
        self.lstm = nn.LSTM(d_model, d_model, depth, batch_first=True)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, outputs)

    def forward(self, x: Float[Tensor, "B L F"]) -> Float[Tensor, "B L O"]:
        """Return the answers at every time."""
        return self.stream(x, self.init_state(len(x)))[0]

    def init_state(self, batch_size: int) -> LSTMState:
        """Return the state at the beginning."""
        return None

    def stream(self, x: Float[Tensor, "B L F"], state: LSTMState) -> tuple[Float[Tensor, "B L O"], LSTMState]:
        """Return the answers at every time of a chunk, and the state after it."""
        y, state = self.lstm(self.inputs(x), state)
        answers: Tensor = self.head(self.norm(y))
        return answers, state

    def step(self, x: Float[Tensor, "B F"], state: LSTMState) -> tuple[Float[Tensor, "B O"], LSTMState]:
        """Return the answers to the values of one time, and the state after it."""
        y, state = self.stream(x.unsqueeze(1), state)
        return y[:, 0], state


class TransformersModel(nn.Module):
    """A causal language model of the `transformers` library, unchanged.

    It takes whole sequences only. Padding on the left and prompts in several chunks are not supported, because the
    Mamba of that library handles them incorrectly.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Int[Tensor, "B L"], at: Positions = None) -> Float[Tensor, "B T V"]:
        """Return logits after each token, or only after those at the positions `at` of each row."""
        check_positions(at, x)
        y = self.model.base_model(input_ids=x, use_cache=False).last_hidden_state
        logits: Tensor = self.model.get_output_embeddings()(take(y, at))
        return logits


class MambaModel(TransformersModel):
    """Mamba of the `transformers` library. On a CPU its scan is a compiled loop, unless the backend is "eager"."""

    def forward(self, x: Int[Tensor, "B L"], at: Positions = None) -> Float[Tensor, "B T V"]:
        """Return logits after each token, or only after those at the positions `at` of each row."""
        with compiled_scan() if choice(x.device.type) == "numba" else nullcontext():
            return super().forward(x, at)
