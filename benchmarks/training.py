"""A training step of 4 blocks (H 256, N 64): DS4D, S4D, the textbook DS4D, and the dense products alone."""

import json
import sys
from collections.abc import Callable

import torch
from torch import nn

from benchmarks import measure
from benchmarks.textbook import TextbookBlock
from delayssm import DS4D, S4D, Block, Stack, param_groups
from delayssm.allocator import keep_freed_memory
from delayssm_lab.environment import peak_memory

N, DEPTH = 64, 4
CASES = [(8, 1024), (8, 4096), (32, 1024), (32, 4096)]


def step(name: str, batch: int, length: int, width: int = 256, depth: int = DEPTH) -> Callable[[], None]:
    """One training step as a function."""
    torch.manual_seed(0)
    x = torch.randn(batch, length, width)
    if name == "products":
        layers = [nn.Linear(width, 2 * width) for _ in range(depth)]
        inputs = [x.clone().requires_grad_() for _ in range(depth)]
        grad = torch.randn(batch, length, 2 * width)

        def products() -> None:
            for layer, part in zip(layers, inputs, strict=True):
                layer(part).backward(grad)

        return products

    model: nn.Module
    match name:
        case "ds4d":
            model = Stack(Block(DS4D(width, N, length)) for _ in range(depth))
        case "s4d":
            model = Stack(Block(S4D(width, N)) for _ in range(depth))
        case _:
            model = nn.Sequential(*(TextbookBlock(width, N, length) for _ in range(depth)))
    optimiser = torch.optim.AdamW(param_groups(model, 1e-3, 1e-4, 0.05), fused=True)

    def train() -> None:
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()

    return train


def run(name: str, batch: int, length: int, width: int = 256, depth: int = DEPTH) -> dict[str, float]:
    """Time one model in this process."""
    if name != "textbook":  # as the entry points of this project that train do; the textbook runs as usual
        keep_freed_memory()
    one = step(name, batch, length, width, depth)
    slow = name.startswith("textbook")
    best = measure.seconds(one, repeats=2 if slow else 6, warmup=1 if slow else 2)
    return {"seconds": best, "gigabytes": peak_memory() / 1e9}


def main() -> None:
    """Print the tables."""
    rows = []
    for batch, length in CASES:
        names = ["products", "ds4d", "s4d", *(["textbook", "textbook, memory kept"] if batch == 8 else [])]
        found = {name: measure.fresh("training", name, batch, length) for name in names}
        for name in ("products", "ds4d", "s4d") * 2:  # in turns, so that one bad moment does not decide a ratio
            again = measure.fresh("training", name, batch, length)
            found[name] = min(found[name], again, key=lambda result: result["seconds"])
        for name in names:
            time = found[name]["seconds"]
            rows.append([
                f"{batch} x {length}",
                {"products": "the dense products alone", "ds4d": "DS4D", "s4d": "S4D"}.get(name, name),
                f"{time * 1e3:.0f}",
                f"{batch * length / time:,.0f}",
                f"{time / found['products']['seconds']:.2f}",
                f"{time / found['s4d']['seconds']:.2f}",
                f"{time / found['ds4d']['seconds']:.2f}",
                f"{found[name]['gigabytes']:.1f}",
            ])  # fmt: skip
    head = ["batch x length", "model", "ms", "tokens/s", "/ products", "/ S4D", "/ DS4D", "peak GB"]
    measure.table(f"Training step, {DEPTH} blocks, H 256, N {N}", head, rows)

    rows, base = [], 0.0
    for length in (4096, 65_536, 131_072):
        found_long = measure.fresh("training", "ds4d", 1, length, 64)
        per_token = found_long["seconds"] / length
        base = base or per_token
        rows.append([
            f"{length:,}", f"{found_long['seconds']:.2f}", f"{per_token * 1e6:.1f}", f"{per_token / base:.2f}",
            f"{found_long['gigabytes']:.1f}",
        ])  # fmt: skip
    measure.table(
        f"Long sequences: DS4D training step, batch 1, {DEPTH} blocks, H 64, N {N}",
        ["length", "s", "microseconds/token", "/ first row", "peak GB"],
        rows,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(run(sys.argv[1], *map(int, sys.argv[2:]))))
    else:
        main()
