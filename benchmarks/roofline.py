"""What the GPU kernels should take on three cards, by counting: nothing here was measured.

A kernel takes at least its arithmetic over the card's rate, and at least its bytes over the card's bandwidth; the
larger of the two is the prediction. Rates are those of data sheets, which kernels reach to a half or so.
"""

from dataclasses import dataclass

from delayssm.system.kernel import EXACT, FLOAT32
from delayssm_lab.report.tables import markdown


@dataclass(frozen=True)
class Card:
    """Arithmetic per second in float64 and float32 (not on tensor cores), and bytes per second."""

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
    """One kernel at one length."""

    name: str
    float64: float
    float32: float
    bytes: float

    def seconds(self, card: Card) -> float:
        """The least it can take."""
        return max(self.float64 / card.float64 + self.float32 / card.float32, self.bytes / card.bandwidth)


def work(length: int) -> list[Work]:
    """What a layer does in one training step, batch 32."""
    modes, signal = N // 2, BATCH * length * H
    found = []
    for name, contour, size in (("float64", EXACT, 8), ("float32", FLOAT32, 4)):
        bins = contour.grid(length) // 2 + 1
        points = H * bins
        terms = points * modes
        one = (terms, 0) if name == "float64" else (0, terms)
        # The result, and two complex table entries in float64 for each point.
        found.append(Work(f"transfer, {name}", *(FORWARD * count for count in one), points * (2 * size + 32)))
        # Blocks of 8 modes read the gradient and the table again.
        again = points * (2 * size + 32) * modes / 8
        found.append(Work(f"transfer backward, {name}", *(BACKWARD * count for count in one), again))
    # Floats moved per element of the signal: padding 3, two transforms of twice the length 4 each, product 4, result 2;
    # backward does the first half twice and adds up the kernel's gradient.
    found.append(Work("FFT convolution, forward", 0, 0, signal * 4 * 17))
    found.append(Work("FFT convolution, backward", 0, 0, signal * 4 * 30))
    found.append(Work("dense product, forward", 0, 4 * signal * H, signal * 4 * 3))
    found.append(Work("dense product, backward", 0, 8 * signal * H, signal * 4 * 6))
    return found


def prefill(length: int) -> Work:
    """The recurrence over a prompt with rings: a mode takes 30 operations a token, and reads and writes its slot."""
    points, modes = BATCH * length * H, N // 2
    return Work("prefill scan", 30.0 * points * modes, 0, points * (8 + modes * 2 * 4 * 2))


def decoding() -> list[Work]:
    """One token of one stream through one layer: all memory, hardly any arithmetic."""
    modes = N // 2
    coefficients, state = H * modes * 8 * 8, H * modes * 2 * 8 * 2
    ring = H * modes * 2 * 4 * 2
    copies = H / 8 * (modes * 2 * 8 * 2) * 8  # an eighth of the channels moves its copies, some eight each at T = 8192
    return [
        Work("decode step, rings", 0, 0, coefficients + state + ring),
        Work("decode step, cascades", 0, 0, coefficients + state + ring + copies),
        Work("its dense product", 0, 4 * H * H, 8 * H * H),
    ]


def text() -> str:
    """Both tables."""
    rows = []
    for length in LENGTHS:
        for one in (*work(length), prefill(length)):
            flops = one.float64 + one.float32
            times = [f"{one.seconds(card) * 1e6:,.0f}" for card in CARDS]
            rows.append([str(length), one.name, f"{flops / 1e9:.2f}", f"{one.bytes / 1e6:,.0f}", *times])
    head = ["length", "kernel", "GFLOP", "MB", *(f"{card.name}, microseconds" for card in CARDS)]
    chunks = markdown(head, rows)
    rows = [[w.name, f"{w.bytes / 1e6:.2f}", *(f"{w.seconds(c) * 1e6:.2f}" for c in CARDS)] for w in decoding()]
    head = ["kernel", "MB", *(f"{card.name}, microseconds" for card in CARDS)]
    return (
        f"One layer over whole sequences, H {H}, N {N}, batch {BATCH}:\n\n{chunks}\n"
        f"One token of one stream through one layer, H {H}, N {N}:\n\n{markdown(head, rows)}"
    )


if __name__ == "__main__":
    print(text())
