"""Process that saves streams and weights again and again, `python -m tests.kills.saver DIRECTORY TIMES`."""

import sys
from pathlib import Path

import torch

from delayssm import DS4D
from delayssm.storage import tensors as tensor_file

STREAMS, WEIGHTS, KIND = "streams.safetensors", "weights.safetensors", "weights of a test 1"


def model() -> DS4D:
    """Return the same layer in every process."""
    torch.manual_seed(0)
    return DS4D(8, 4, max_delay=4).eval()


@torch.no_grad()
def main(directory: Path, times: int) -> None:
    """Advance streams by one token after the other and save them, and weights that are all equal to that number."""
    layer = model()
    streams = directory / STREAMS
    state = layer.load_state(streams) if streams.exists() else layer.init_state(3)
    for _ in range(times):
        _, state = layer.step(torch.ones(3, 8), state)
        count = int(state.position[0])
        weights = {name: torch.full_like(t, count, dtype=torch.float64) for name, t in layer.state_dict().items()}
        tensor_file.write(directory / WEIGHTS, KIND, weights, {})
        state.save(streams)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
