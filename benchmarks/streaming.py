"""Token by token through 4 blocks (H 256, N 64) with embedding and head: memory of the state, exactness, speed."""

import json
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import measure
from delayssm import DS4D, S4D, Block, Stack, TokenModel
from delayssm_lab.measure.dense import DenseStep

WIDTH, N, DEPTH, VOCABULARY = 256, 64, 4, 100
LENGTHS = [1024, 2048, 4096, 8192, 65_536]
NAMES = {
    "ds4d": "DS4D, max_length = T",
    "ring": "DS4D, endless",
    "s4d": "S4D",
    "dense": "DS4D, dense buffer, eager torch",
}


def model_of(name: str, length: int) -> TokenModel:
    """Delays on the default grid up to `length`."""
    torch.manual_seed(0)
    layers = [S4D(WIDTH, N) if name == "s4d" else DS4D(WIDTH, N, length) for _ in range(DEPTH)]
    return TokenModel(VOCABULARY, Stack(map(Block, layers))).eval()


@torch.no_grad()
def error(name: str, length: int) -> float:
    """Relative RMS difference between the FFT pass and a prompt of half the tokens, steps, a chunk, steps."""
    torch.manual_seed(0)
    stack = Stack(Block(DS4D(WIDTH, N, length)) for _ in range(DEPTH)).eval()
    x = torch.randn(1, length, WIDTH)
    y, state = stack.stream(x[:, : length // 2], stack.init_state(1, None if name == "ring" else length))
    outputs = [y]
    decoder = stack.decoder(state)
    outputs += [decoder(x[:, t]).clone()[:, None] for t in range(length // 2, length // 2 + 300)]
    y, state = stack.stream(x[:, length // 2 + 300 : -100], decoder.state)
    decoder = stack.decoder(state)
    outputs += [y, *(decoder(x[:, t]).clone()[:, None] for t in range(length - 100, length))]
    whole, found = stack(x), torch.cat(outputs, 1)
    return float((found - whole).square().mean().sqrt() / whole.square().mean().sqrt())


@torch.no_grad()
def step_of(name: str, batch: int, length: int) -> tuple[Callable[[Tensor], Tensor], int]:
    """A function from tokens to logits, and the bytes of its state."""
    model = model_of(name, length)
    if name == "dense":
        dense = DenseStep(model.backbone, batch, length)
        weight = model.embedding.weight
        return lambda tokens: model.head(model.norm(dense(weight[tokens]))), dense.nbytes
    state = model.init_state(batch, length if name == "ds4d" else None)
    return model.decoder(state), state.nbytes


@torch.no_grad()
def run(name: str, batch: int, length: int, count: int) -> dict[str, float]:
    """Time `count` tokens of one model in this process."""
    step, nbytes = step_of(name, batch, length)
    times = _seconds(step, torch.randint(0, VOCABULARY, (count, batch)))[20:]
    return {
        "microseconds": float(times.median()) * 1e6,
        "best": float(times.quantile(0.05)) * 1e6,
        "megabytes": nbytes / DEPTH / 1e6,
    }


@torch.no_grad()
def flatness(name: str, length: int) -> dict[str, float]:
    """The last 1,000 tokens of a stream against its first, after 20 for warming up.

    They are taken in turns of 100, so that a change of the machine's speed does not look like one of ours.
    """
    model = model_of(name, length)
    tokens = torch.randint(0, VOCABULARY, (length, 1))
    decoders, times = {}, {}
    for first in (20, length - 1020):
        state = model.init_state(1, length if name == "ds4d" else None)
        _, state = model.stream(tokens[:first].T, state)
        decoders[first], times[first] = model.decoder(state), []
    for turn in range(10):
        for first, decoder in decoders.items():
            start = first + 100 * turn
            times[first].append(
                _seconds(decoder, tokens[start : start + 100])[10:]
            )  # the caches are the other's at first
    start, end = (torch.cat(parts).median() for parts in times.values())
    return {"ratio": float(end / start)}


def _seconds(step: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Of each token (count, batch)."""
    times = []
    for token in tokens:
        start = time.perf_counter()
        step(token)
        times.append(time.perf_counter() - start)
    return torch.tensor(times)


@torch.no_grad()
def prompt(length: int) -> dict[str, float]:
    """A prompt through the recurrence, which gives outputs and states, and through the FFT, which gives outputs."""
    model = model_of("ds4d", 8192)
    tokens = torch.randint(0, VOCABULARY, (1, length))
    return {
        "stream": measure.seconds(lambda: model.stream(tokens, model.init_state(1, 8192)), repeats=5),
        "fft": measure.seconds(lambda: model(tokens), repeats=5),
    }


def main() -> None:
    """Print the tables."""
    rows = []
    for length in (128, 1024, 8192):
        found = measure.fresh("streaming", "prompt", length)
        both = found["stream"], found["fft"]
        rows.append([f"{length:,}", *(f"{s * 1e3:.0f}" for s in both), f"{length / both[0]:,.0f}"])
    head = ["tokens", "ms by recurrence: outputs and states", "ms by FFT: outputs only", "tokens/s by recurrence"]
    measure.table(f"Prompt: {DEPTH} blocks, H {WIDTH}, N {N}, batch 1, max_length = 8192", head, rows)

    rows = []
    for T in LENGTHS:
        cache = 2 * T * WIDTH * 4 / 1e6  # keys and values in float32
        sizes = {name: model_of(name, T).init_state(1, T if name == "ds4d" else None).nbytes / DEPTH / 1e6
                 for name in ("ds4d", "ring", "s4d")}  # fmt: skip
        dense = T * WIDTH * N * 4 / 1e6
        rows.append([
            f"{T:,}", f"{sizes['ds4d']:.2f}", f"{sizes['ring']:.1f}", f"{sizes['s4d']:.2f}", f"{dense:.0f}",
            f"{cache:.1f}", f"{cache / sizes['ds4d']:.1f}", f"{dense / sizes['ds4d']:.0f}",
            f"{error('ds4d', T):.1e}", f"{error('ring', T):.1e}",
        ])  # fmt: skip
    head = [
        "T", "DS4D, max_length = T", "DS4D, endless", "S4D", "DS4D, dense buffer", "GPT-2's cache", "cache / ours",
        "dense / ours", "difference from the FFT pass", "the same, endless",
    ]  # fmt: skip
    measure.table(f"State of one stream, MB per layer (H {WIDTH}, N {N}, delays on the grid up to T)", head, rows)
    print("\nDifferences: relative RMS after 4 blocks; half the tokens as a prompt, 300 steps, a chunk, 100 steps.")

    rows = []
    for batch, count in ((1, 8192), (8, 600), (64, 200)):
        names = {1: ["ds4d", "ring", "s4d", "dense"], 8: ["ds4d", "ring", "s4d"]}.get(batch, ["ds4d", "s4d"])
        found = {name: measure.fresh("streaming", name, batch, 8192, min(count, 600 if name == "dense" else count))
                 for name in names}  # fmt: skip
        for name in names:
            one = found[name]
            flat = (
                f"{measure.fresh('streaming', 'flatness', name)['ratio']:.2f}" if batch == 1 and name != "dense" else ""
            )
            ratio = f"{found['dense']['microseconds'] / one['microseconds']:.1f}" if "dense" in found else ""
            rows.append([
                str(batch), NAMES[name], f"{one['microseconds']:,.0f}", f"{one['best']:,.0f}",
                f"{batch / one['microseconds'] * 1e6:,.0f}", ratio, flat,
                f"{one['megabytes']:,.1f}",
            ])  # fmt: skip
    head = [
        "batch", "model", "microseconds per step", "the fastest 5 %", "tokens/s", "times the dense step's speed",
        "last / first 1,000 tokens", "MB of state per layer",
    ]  # fmt: skip
    measure.table(f"Decoding: {DEPTH} blocks, H {WIDTH}, N {N}, vocabulary {VOCABULARY}, T = 8192", head, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["flatness"]:
        print(json.dumps(flatness(sys.argv[2], 8192)))
    elif sys.argv[1:2] == ["prompt"]:
        print(json.dumps(prompt(int(sys.argv[2]))))
    elif len(sys.argv) > 1:
        print(json.dumps(run(sys.argv[1], *map(int, sys.argv[2:]))))
    else:
        main()
