"""Where the paddles of a Pathfinder image go. Nearly all in whole numbers, so that every machine finds the same.

A snake is a row of paddles, each (y, x, which stamp). It grows at its end: from the pivot one step on, a pixel of the
circle around it is drawn by its chance; a few tries to find one whose mask does not run into others; or it fails.
What a paddle covers counts as taken only when the next one of its snake stands, for neighbours may touch.
"""

from typing import Any, NamedTuple

import numpy as np

from delayssm.backends.numba_compile import Array, compiled
from delayssm_lab.data.generate.pathfinder_stamps import Stamps

_FULL = 255
#: Two masks may overlap up to this sum: 1.8 of full.
_CROWDED = 459
#: A pixel is taken from this on: 0.3 of full.
_TAKEN = 77
#: Free pixels are drawn this often before all are looked at.
_DRAWS = 64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Rules(NamedTuple):
    """Sizes, and how often a failure is tried again."""

    size: int
    padding: int
    seed_distance: int
    paddle_retries: int
    distractor_retries: int
    restarts: int
    least_chance: int  #: where the chances of all turns sum up to less, there is none


@compiled()
def _bits(state: Array) -> Any:
    """The next 64 random bits: splitmix64."""
    state[0] += _GOLDEN
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled()
def _below(state: Array, n: Any) -> Any:
    """A random number in 0 .. n - 1."""
    return np.int64(_bits(state) % np.uint64(n))


@compiled(inline=True)
def _common(image: Array, stamp: Array, y: Any, x: Any) -> Any:
    """The parts of image and stamp that lie on each other, where the stamp's first corner is at (y, x)."""
    top, left = max(0, -y), max(0, -x)
    bottom, right = min(stamp.shape[0], image.shape[0] - y), min(stamp.shape[1], image.shape[1] - x)
    return image[y + top : y + bottom, x + left : x + right], stamp[top:bottom, left:right]


@compiled()
def _paste(image: Array, stamp: Array, y: Any, x: Any) -> None:
    """The larger of both, from (y, x) on."""
    below, above = _common(image, stamp, y, x)
    for i in range(below.shape[0]):
        for j in range(below.shape[1]):
            below[i, j] = max(below[i, j], above[i, j])


@compiled()
def _fits(taken: Array, mask: Array, y: Any, x: Any) -> Any:
    """Does a mask from (y, x) on keep clear of what is taken?"""
    below, above = _common(taken, mask, y, x)
    for i in range(below.shape[0]):
        for j in range(below.shape[1]):
            if np.int64(below[i, j]) + np.int64(above[i, j]) >= _CROWDED:
                return False
    return True


@compiled()
def _inside(size: Any, y: Any, x: Any) -> Any:
    return 0 <= y < size and 0 <= x < size


@compiled()
def _take(stamps: Stamps, taken: Array, paddle: Array) -> None:
    """Its mask counts from now on."""
    half = stamps.mask.shape[1] // 2
    _paste(taken, stamps.mask[paddle[2]], paddle[0] - half, paddle[1] - half)


@compiled()
def _moved(at: Any, by: Any) -> Any:
    """Up to whole pixels. A sine of 1e-16 where 0 is meant counts, near the edge: so it is in the published images."""
    return np.int64(np.ceil(at + by))


@compiled()
def _start(stamps: Stamps, size: Any, snake: Array, pivot: Array, y: Any, x: Any, direction: Any) -> Any:
    """Put a first paddle there, if it and the pivot lie inside the image."""
    snake[0, 0], snake[0, 1], snake[0, 2] = y, x, direction
    head_y, head_x = _moved(y, stamps.head[direction, 0]), _moved(x, stamps.head[direction, 1])
    pivot[0], pivot[1] = _moved(head_y, stamps.back[direction, 0]), _moved(head_x, stamps.back[direction, 1])
    return _inside(size, head_y, head_x) and _inside(size, pivot[0], pivot[1])


@compiled()
def _free(taken: Array, reach: Array, border: Any, y: Any, x: Any) -> Any:
    """Is all that a first paddle at (y, x) reaches free, and as far from the edge as the border is wide?"""
    size = taken.shape[0]
    for k in range(len(reach)):
        i, j = y + reach[k, 0], x + reach[k, 1]
        if _inside(size, i, j) and (min(i, j) < border or max(i, j) >= size - border or taken[i, j] >= _TAKEN):
            return False
    return True


@compiled()
def _free_place(state: Array, taken: Array, reach: Array, border: Any, low: Any) -> Any:
    """Draw one of the free pixels from row and column `low` on, at (y, x); at (-1, -1) if there is none.

    Drawing until one is free does it without looking at all of them; where few are, that would not end.
    """
    span = taken.shape[0] - 2 * low
    for _ in range(_DRAWS):
        y, x = low + _below(state, span), low + _below(state, span)
        if _free(taken, reach, border, y, x):
            return y, x
    found = np.empty(span * span, np.int64)
    count = 0
    for place in range(span * span):
        if _free(taken, reach, border, low + place // span, low + place % span):
            found[count] = place
            count += 1
    if count == 0:
        return -1, -1
    place = found[_below(state, count)]
    return low + place // span, low + place % span


@compiled()
def _seed(stamps: Stamps, rules: Rules, state: Array, taken: Array, border: Any, snake: Array, pivot: Array) -> Any:
    """A first paddle in a random direction, at a random one of the places that are free for it."""
    low = max(0, border - stamps.mask.shape[1] // 2)
    for _ in range(rules.paddle_retries + 1):
        direction = _below(state, 360)
        if not stamps.seeds[direction]:
            return False
        y, x = _free_place(state, taken, stamps.reach[direction], border, low)
        if y < 0:
            return False
        if _start(stamps, rules.size, snake, pivot, y, x, direction):
            return True
    return False


@compiled()
def _second(stamps: Stamps, rules: Rules, state: Array, first: Array, snake: Array, pivot: Array) -> Any:
    """The first paddle of the other target contour: `seed_distance` away, wherever that is."""
    for _ in range(rules.paddle_retries + 1):
        direction = _below(state, 360)
        away = stamps.seconds[_below(state, 360)]
        if _start(stamps, rules.size, snake, pivot, first[0] + away[0], first[1] + away[1], direction):
            return True
    return False


@compiled()
def _extend(stamps: Stamps, rules: Rules, state: Array, taken: Array, snake: Array, k: Any, pivot: Array) -> Any:
    """Add paddle k, or fail."""
    step, turn = stamps.step[snake[k - 1, 2]], stamps.turn[snake[k - 1, 2]]
    pivot[0], pivot[1] = _moved(pivot[0], step[0]), _moved(pivot[1], step[1])
    chance = np.zeros(len(stamps.circle), np.int64)
    total = 0
    for c in range(len(chance)):
        y, x = pivot[0] + stamps.circle[c, 0], pivot[1] + stamps.circle[c, 1]
        if turn[c] > 0 and _inside(rules.size, y, x):
            crowd = np.int64(0)
            for n in range(len(stamps.near)):
                i, j = y + stamps.near[n, 0], x + stamps.near[n, 1]
                if _inside(rules.size, i, j):
                    crowd = max(crowd, np.int64(taken[i, j]))
            total += turn[c] * (_FULL - crowd)
        chance[c] = total
    if total < _FULL * rules.least_chance:
        return False
    half = stamps.mask.shape[1] // 2
    for _ in range(rules.paddle_retries + 1):
        drawn, c = _below(state, total), 0
        while chance[c] <= drawn:
            c += 1
        y, x = pivot[0] + stamps.circle[c, 0], pivot[1] + stamps.circle[c, 1]
        if _fits(taken, stamps.mask[360 + c], y - half, x - half):
            _take(stamps, taken, snake[k - 1])
            snake[k, 0], snake[k, 1], snake[k, 2] = y, x, 360 + c
            return True
    return False


@compiled()
def _clear(taken: Array, padding: Any) -> None:
    """All free but the padding. A loop, for it is done for every attempt, and this one is compiled well."""
    size = taken.shape[0]
    for y in range(size):
        edge = y < padding or y >= size - padding
        for x in range(size):
            taken[y, x] = _FULL if edge else 0
        for x in range(padding):
            taken[y, x] = taken[y, size - 1 - x] = _FULL


@compiled()
def _targets(stamps: Stamps, rules: Rules, state: Array, taken: Array, snakes: Array) -> Any:
    """Both target contours, a paddle of each in turn, or fail."""
    pivots = np.empty((2, 2), np.int64)
    _clear(taken, rules.padding)
    if not _seed(stamps, rules, state, taken, 2 * rules.seed_distance, snakes[0], pivots[0]):
        return False
    if not _second(stamps, rules, state, snakes[0, 0], snakes[1], pivots[1]):
        return False
    for k in range(1, snakes.shape[1]):
        for s in range(2):
            if not _extend(stamps, rules, state, taken, snakes[s], k, pivots[s]):
                return False
    _take(stamps, taken, snakes[1, -1])  # not the end of the first: so it is in the published images
    return True


@compiled()
def _distractor(stamps: Stamps, rules: Rules, state: Array, taken: Array, snake: Array) -> None:
    """One more contour, or -1 all along it and nothing taken."""
    pivot = np.empty(2, np.int64)
    for _ in range(rules.distractor_retries + 1):
        trial = taken.copy()
        grown = _seed(stamps, rules, state, trial, rules.padding, snake, pivot)
        for k in range(1, len(snake)):
            grown = grown and _extend(stamps, rules, state, trial, snake, k, pivot)
        if grown:
            _take(stamps, trial, snake[-1])
            _paste(taken, trial, 0, 0)
            return
    snake[:] = -1


@compiled()
def _from_edge(size: Any, n: Any, at: Any) -> Any:
    """Where in a picture of n pixels a pixel is as far from the edges as in one of `size`, or in the middle."""
    return max(min(at, n // 2), at - (size - n))


@compiled()
def _paint(layer: Array, stamps: Stamps, snakes: Array) -> None:
    """Paste the paddles of snakes (S, K, 3)."""
    half = stamps.paddle.shape[1] // 2
    for s in range(snakes.shape[0]):
        for k in range(snakes.shape[1]):
            if snakes[s, k, 2] >= 0:
                _paste(layer, stamps.paddle[snakes[s, k, 2]], snakes[s, k, 0] - half, snakes[s, k, 1] - half)


@compiled()
def _image(
    stamps: Stamps, rules: Rules, state: Array, targets: Array, distractors: Array, markers: Array, layers: Array
) -> Any:
    """Place and paint one image. Its label, or -1 if both targets never fit."""
    taken = np.empty((rules.size, rules.size), np.uint8)
    for _ in range(rules.restarts):
        if _targets(stamps, rules, state, taken, targets):
            for d in range(len(distractors)):
                _distractor(stamps, rules, state, taken, distractors[d])
            label, first = _below(state, 2), _below(state, 2)
            last = first if label == 1 else 1 - first
            for axis in range(2):
                markers[0, axis] = targets[first, 0, axis]
                markers[1, axis] = targets[last, -1, axis]
            _paint(layers[0], stamps, targets)
            _paint(layers[1], stamps, distractors)
            n = len(stamps.disc)
            for m in range(2):
                i, j = _from_edge(rules.size, n, markers[m, 0]), _from_edge(rules.size, n, markers[m, 1])
                _paste(layers[2], stamps.disc[i, j], markers[m, 0] - i, markers[m, 1] - j)
            return label
    return -1


@compiled()
def draw(
    stamps: Stamps, rules: Rules, keys: Array, rows: Array, found: tuple[Array, Array, Array, Array, Array]
) -> None:
    """Fill these rows of targets (images, 2, K, 3), distractors (images, D, K', 3), markers, layers and labels."""
    targets, distractors, markers, layers, labels = found
    for i in rows:
        state = np.full(1, keys[i])
        labels[i] = _image(stamps, rules, state, targets[i], distractors[i], markers[i], layers[i])
        if labels[i] < 0:
            return
