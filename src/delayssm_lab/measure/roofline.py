"""Predicted time of the GPU kernels on three cards, by counting operations and bytes: nothing here is measured.

A kernel takes at least its operations over the card's arithmetic rate, and at least its bytes over the card's
bandwidth; the larger of the two is the prediction. Rates are those of data sheets, of which kernels reach about half.
"""

from __future__ import annotations

from dataclasses import dataclass

from delayssm.system.kernel import CONTOURS
from delayssm_lab.report.tables import markdown


@dataclass(frozen=True)
class Card:
    """Operations per second in float64 and float32, without tensor cores, and bytes per second."""

    name: str
    float64: float
    float32: float
    bandwidth: float


CARDS = (
    Card("A100", 9.7e12, 19.5e12, 2.04e12),
    Card("H100", 33.5e12, 66.9e12, 3.35e12),
    Card("RTX 5090", 1.64e12, 104.8e12, 1.79e12),
)
H, N, BATCH = 256, 64, 32
LENGTHS = (1024, 2048, 4096, 8192)

#: Operations for one mode at one frequency, read off the kernels: 30 for the two resolvents, and a division, which
#: takes about ten; two complex sums of 6 (forward); and 56 for products with the gradient and eight sums (backward).
FORWARD, BACKWARD = 52, 96


@dataclass(frozen=True)
class Work:
    """Operations and bytes of one kernel."""

    name: str
    float64: float
    float32: float
    bytes: float

    def seconds(self, card: Card) -> float:
        """Return the least time that a card needs."""
        return max(self.float64 / card.float64 + self.float32 / card.float32, self.bytes / card.bandwidth)


def training(length: int) -> list[Work]:
    """Return the kernels of one layer in a training step."""
    modes, signal = N // 2, BATCH * length * H
    kernels = []
    for name, contour, size in (("float64", CONTOURS["exact"], 8), ("float32", CONTOURS["float32"], 4)):
        bins = contour.grid(length) // 2 + 1
        points = H * bins
        terms = points * modes
        double, single = (terms, 0) if name == "float64" else (0, terms)
        # The result, and two complex table entries in float64 for each point.
        forward_bytes = points * (2 * size + 32)
        kernels.append(Work(f"transfer, {name}", FORWARD * double, FORWARD * single, forward_bytes))
        # Blocks of 8 modes read the gradient and the table again.
        backward_bytes = forward_bytes * modes / 8
        kernels.append(Work(f"transfer backward, {name}", BACKWARD * double, BACKWARD * single, backward_bytes))
    # Floats moved per element of the signal: padding 3, two transforms of twice the length 4 each, product 4, result 2;
    # backward does the first half twice and adds up the kernel's gradient.
    kernels.append(Work("FFT convolution, forward", 0, 0, signal * 4 * 17))
    kernels.append(Work("FFT convolution, backward", 0, 0, signal * 4 * 30))
    kernels.append(Work("dense product, forward", 0, 4 * signal * H, signal * 4 * 3))
    kernels.append(Work("dense product, backward", 0, 8 * signal * H, signal * 4 * 6))
    return kernels


def prefill(length: int) -> Work:
    """Return the recurrence over a prompt with rings.

    A mode takes 30 operations per token, and reads and writes its slot.
    """
    points, modes = BATCH * length * H, N // 2
    return Work("prefill scan", 30.0 * points * modes, 0, points * (8 + modes * 2 * 4 * 2))


def decoding() -> list[Work]:
    """Return the kernels of one token of one stream in one layer: all memory, hardly any arithmetic."""
    modes = N // 2
    coefficients, state = H * modes * 8 * 8, H * modes * 2 * 8 * 2
    ring = H * modes * 2 * 4 * 2
    return [
        Work("decode step, rings", 0, 0, coefficients + state + ring),
        Work("its dense product", 0, 4 * H * H, 8 * H * H),
    ]


def text() -> str:
    """Return the tables of training and decoding in Markdown."""
    rows = []
    for length in LENGTHS:
        for work in (*training(length), prefill(length)):
            operations = work.float64 + work.float32
            times = [f"{work.seconds(card) * 1e6:,.0f}" for card in CARDS]
            counted = f"{operations / 1e9:.2f}" if operations else "–"
            rows.append([f"{length:,}", work.name, counted, f"{work.bytes / 1e6:,.0f}", *times])
    head = ["length", "kernel", "GFLOP", "MB", *(f"{card.name}, microseconds" for card in CARDS)]
    sequences = markdown(head, rows)
    rows = [[w.name, f"{w.bytes / 1e6:.2f}", *(f"{w.seconds(c) * 1e6:.2f}" for c in CARDS)] for w in decoding()]
    head = ["kernel", "MB", *(f"{card.name}, microseconds" for card in CARDS)]
    return (
        f"One layer over whole sequences, H {H}, N {N}, batch {BATCH}:\n\n{sequences}\n"
        f"One token of one stream through one layer, H {H}, N {N}:\n\n{markdown(head, rows)}"
    )
