"""Threads that decode different streams of one model, beside one that saves and loads them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from delayssm import DS4D, S4D, Block, Stack, TokenModel
from delayssm.system.state import States

V, LENGTH = 50, 300
#: What each thread decodes: rows, and the greatest length of its streams, or None for endless ones.
STREAMS: list[tuple[int, int | None]] = [
    (1, None), (1, LENGTH), (3, LENGTH), (8, LENGTH), (2, None), (1, 2 * LENGTH), (5, LENGTH), (64, LENGTH)
]  # fmt: skip


class Exchange:
    """A place where one thread leaves its streams for another, which saves and loads them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[States, list[States]]] = []
        self._changed = threading.Condition()
        self._closed = False

    def pass_through(self, state: States) -> States:
        """Return the same streams, after they were in a file."""
        loaded: list[States] = []
        with self._changed:
            self._waiting.append((state, loaded))
            self._changed.notify_all()
            self._changed.wait_for(lambda: bool(loaded) or self._closed)
        return loaded[0] if loaded else state

    def serve(self, model: TokenModel, path: Path) -> int:
        """Save and load what others leave here, until the exchange is closed; return how often."""
        count = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
                if self._closed:
                    return count
                state, loaded = self._waiting.pop(0)
            state.save(path)
            back = model.load_state(path)
            count += 1
            with self._changed:
                loaded.append(back)
                self._changed.notify_all()

    def close(self) -> None:
        """Let everybody go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def soak(seconds: float, folder: Path) -> tuple[int, int]:
    """Decode for some time; return the numbers of tokens, all of which were right, and of files."""
    torch.manual_seed(0)
    model = TokenModel(V, Stack([Block(DS4D(32, 16, 200)), Block(S4D(32, 16)), Block(DS4D(32, 16, 90))])).eval()
    tokens = torch.randint(0, V, (max(rows for rows, _ in STREAMS), LENGTH))
    with torch.no_grad():
        expected = model(tokens)
    largest, until, exchange = float(expected.abs().max()), time.monotonic() + seconds, Exchange()

    def decode(rows: int, bound: int | None) -> int:
        count = 0
        while time.monotonic() < until:
            decoder = model.decoder(model.init_state(rows, bound))
            for t in range(LENGTH):
                error = float((decoder(tokens[:rows, t]) - expected[:rows, t]).abs().max())
                assert error <= 1e-5 * largest, f"token {t} of {rows} streams is off by {error}"
                if t % 97 == 50:
                    decoder = model.decoder(exchange.pass_through(decoder.state))
            count += rows * LENGTH
        return count

    with ThreadPoolExecutor(len(STREAMS) + 1) as pool:
        saving = pool.submit(exchange.serve, model, folder / "state")
        decoding = [pool.submit(decode, rows, bound) for rows, bound in STREAMS]
        try:
            counts = [future.result() for future in decoding]
        finally:
            exchange.close()
        return sum(counts), saving.result()
