"""Placement of the paddles of Pathfinder images, almost entirely in integers, so that all machines agree.

A snake is an array of paddles, each (y, x, stamp). It grows at its end. The pivot moves one step on, and the next
paddle starts at a random pixel of the circle around it. If its mask overlaps occupied pixels, other pixels are tried a
few times; then the snake fails. The pixels of a paddle become occupied only after the next paddle of its snake is
placed, because neighbours may touch.
"""

from typing import Any, NamedTuple

import numpy as np

from delayssm.backends.numba_compile import Array, compiled, fragment
from delayssm_lab.data.generate.pathfinder_stamps import Stamps

_FULL = 255
#: Sum of two masks from which they overlap: 1.8 of full.
_OVERLAP = 459
#: Value from which a pixel is occupied: 0.3 of full.
_OCCUPIED = 77
#: Number of random draws for a free pixel before all pixels are enumerated.
_DRAWS = 64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Rules(NamedTuple):
    """Sizes, and numbers of attempts."""

    size: int
    padding: int
    seed_distance: int
    paddle_retries: int
    distractor_retries: int
    max_attempts: int
    min_total_probability: int  #: a snake fails if the probabilities of its turns sum to less


@fragment()
def _random_bits(state: Array) -> Any:
    """Return the next 64 random bits of splitmix64."""
    state[0] += _GOLDEN
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@fragment()
def _random_below(state: Array, n: Any) -> Any:
    """Return a random integer in 0 to n - 1."""
    return np.int64(_random_bits(state) % np.uint64(n))


@fragment(inline=True)
def _overlap(image: Array, stamp: Array, y: Any, x: Any) -> Any:
    """Return the overlapping views of an image and a stamp whose first corner is at (y, x)."""
    top, left = max(0, -y), max(0, -x)
    bottom, right = min(stamp.shape[0], image.shape[0] - y), min(stamp.shape[1], image.shape[1] - x)
    return image[y + top : y + bottom, x + left : x + right], stamp[top:bottom, left:right]


@fragment()
def _paste(image: Array, stamp: Array, y: Any, x: Any) -> None:
    """Paste a stamp at (y, x): the maximum of image and stamp."""
    below, above = _overlap(image, stamp, y, x)
    for i in range(below.shape[0]):
        for j in range(below.shape[1]):
            below[i, j] = max(below[i, j], above[i, j])


@fragment()
def _fits(occupied: Array, mask: Array, y: Any, x: Any) -> Any:
    """Return whether a mask at (y, x) keeps clear of the occupied pixels."""
    below, above = _overlap(occupied, mask, y, x)
    for i in range(below.shape[0]):
        for j in range(below.shape[1]):
            if np.int64(below[i, j]) + np.int64(above[i, j]) >= _OVERLAP:
                return False
    return True


@fragment()
def _inside(size: Any, y: Any, x: Any) -> Any:
    return 0 <= y < size and 0 <= x < size


@fragment()
def _occupy(stamps: Stamps, occupied: Array, paddle: Array) -> None:
    """Add the mask of a paddle to the occupied pixels."""
    half = stamps.mask.shape[1] // 2
    _paste(occupied, stamps.mask[paddle[2]], paddle[0] - half, paddle[1] - half)


@fragment()
def _moved(at: Any, by: Any) -> Any:
    """Return at + by, rounded up to a whole pixel.

    As in the published generator, a sine of 1e-16 in place of 0 is not rounded off. Near the edge, it moves the result
    by a pixel.
    """
    return np.int64(np.ceil(at + by))


@fragment()
def _start(stamps: Stamps, size: Any, snake: Array, pivot: Array, y: Any, x: Any, direction: Any) -> Any:
    """Place a first paddle at (y, x), and return whether it and its pivot are inside the image."""
    snake[0, 0], snake[0, 1], snake[0, 2] = y, x, direction
    head_y, head_x = _moved(y, stamps.head[direction, 0]), _moved(x, stamps.head[direction, 1])
    pivot[0], pivot[1] = _moved(head_y, stamps.back[direction, 0]), _moved(head_x, stamps.back[direction, 1])
    return _inside(size, head_y, head_x) and _inside(size, pivot[0], pivot[1])


@fragment()
def _is_free(occupied: Array, reach: Array, border: Any, y: Any, x: Any) -> Any:
    """Return whether the reach of a first paddle at (y, x) is free and outside of the border."""
    size = occupied.shape[0]
    for k in range(len(reach)):
        i, j = y + reach[k, 0], x + reach[k, 1]
        if _inside(size, i, j) and (min(i, j) < border or max(i, j) >= size - border or occupied[i, j] >= _OCCUPIED):
            return False
    return True


@fragment(makes_arrays=True)
def _draw_free(state: Array, occupied: Array, reach: Array, border: Any, low: Any) -> Any:
    """Draw a free pixel (y, x) at least `low` pixels from the edges; return (-1, -1) if there is none.

    Rejection sampling is fast while many pixels are free. If it fails, all pixels are enumerated.
    """
    span = occupied.shape[0] - 2 * low
    for _ in range(_DRAWS):
        y, x = low + _random_below(state, span), low + _random_below(state, span)
        if _is_free(occupied, reach, border, y, x):
            return y, x
    free = np.empty(span * span, np.int64)
    count = 0
    for pixel in range(span * span):
        if _is_free(occupied, reach, border, low + pixel // span, low + pixel % span):
            free[count] = pixel
            count += 1
    if count == 0:
        return -1, -1
    pixel = free[_random_below(state, count)]
    return low + pixel // span, low + pixel % span


@fragment()
def _start_snake(
    stamps: Stamps, rules: Rules, state: Array, occupied: Array, border: Any, snake: Array, pivot: Array
) -> Any:
    """Place a first paddle in a random direction at a random free pixel, and return whether that succeeded."""
    low = max(0, border - stamps.mask.shape[1] // 2)
    for _ in range(rules.paddle_retries + 1):
        direction = _random_below(state, 360)
        if not stamps.seeds[direction]:
            return False
        y, x = _draw_free(state, occupied, stamps.reach[direction], border, low)
        if y < 0:
            return False
        if _start(stamps, rules.size, snake, pivot, y, x, direction):
            return True
    return False


@fragment()
def _start_second(stamps: Stamps, rules: Rules, state: Array, first: Array, snake: Array, pivot: Array) -> Any:
    """Place the first paddle of the second target, `seed_distance` from the first; return whether that succeeded."""
    for _ in range(rules.paddle_retries + 1):
        direction = _random_below(state, 360)
        offset = stamps.seconds[_random_below(state, 360)]
        if _start(stamps, rules.size, snake, pivot, first[0] + offset[0], first[1] + offset[1], direction):
            return True
    return False


@fragment(makes_arrays=True)
def _extend(stamps: Stamps, rules: Rules, state: Array, occupied: Array, snake: Array, k: Any, pivot: Array) -> Any:
    """Add paddle k to a snake, and return whether that succeeded."""
    step, turn = stamps.step[snake[k - 1, 2]], stamps.turn[snake[k - 1, 2]]
    pivot[0], pivot[1] = _moved(pivot[0], step[0]), _moved(pivot[1], step[1])
    cumulative = np.zeros(len(stamps.circle), np.int64)
    total = 0
    for c in range(len(cumulative)):
        y, x = pivot[0] + stamps.circle[c, 0], pivot[1] + stamps.circle[c, 1]
        if turn[c] > 0 and _inside(rules.size, y, x):
            highest = np.int64(0)
            for n in range(len(stamps.near)):
                i, j = y + stamps.near[n, 0], x + stamps.near[n, 1]
                if _inside(rules.size, i, j):
                    highest = max(highest, np.int64(occupied[i, j]))
            total += turn[c] * (_FULL - highest)
        cumulative[c] = total
    if total < _FULL * rules.min_total_probability:
        return False
    half = stamps.mask.shape[1] // 2
    for _ in range(rules.paddle_retries + 1):
        drawn, c = _random_below(state, total), 0
        while cumulative[c] <= drawn:
            c += 1
        y, x = pivot[0] + stamps.circle[c, 0], pivot[1] + stamps.circle[c, 1]
        if _fits(occupied, stamps.mask[360 + c], y - half, x - half):
            _occupy(stamps, occupied, snake[k - 1])
            snake[k, 0], snake[k, 1], snake[k, 2] = y, x, 360 + c
            return True
    return False


@fragment()
def _clear(occupied: Array, padding: Any) -> None:
    """Mark all pixels free except the padding. This runs at every attempt, and explicit loops compile well."""
    size = occupied.shape[0]
    for y in range(size):
        edge = y < padding or y >= size - padding
        for x in range(size):
            occupied[y, x] = _FULL if edge else 0
        for x in range(padding):
            occupied[y, x] = occupied[y, size - 1 - x] = _FULL


@fragment(makes_arrays=True)
def _place_targets(stamps: Stamps, rules: Rules, state: Array, occupied: Array, snakes: Array) -> Any:
    """Place both target contours, a paddle of each in turn, and return whether that succeeded."""
    pivots = np.empty((2, 2), np.int64)
    _clear(occupied, rules.padding)
    if not _start_snake(stamps, rules, state, occupied, 2 * rules.seed_distance, snakes[0], pivots[0]):
        return False
    if not _start_second(stamps, rules, state, snakes[0, 0], snakes[1], pivots[1]):
        return False
    for k in range(1, snakes.shape[1]):
        for s in range(2):
            if not _extend(stamps, rules, state, occupied, snakes[s], k, pivots[s]):
                return False
    _occupy(stamps, occupied, snakes[1, -1])  # but not the end of the first target, as in the published generator
    return True


@fragment(makes_arrays=True)
def _place_distractor(stamps: Stamps, rules: Rules, state: Array, occupied: Array, snake: Array) -> None:
    """Place a distractor, or fill it with -1 if it does not fit."""
    pivot = np.empty(2, np.int64)
    for _ in range(rules.distractor_retries + 1):
        trial = occupied.copy()
        grown = _start_snake(stamps, rules, state, trial, rules.padding, snake, pivot)
        for k in range(1, len(snake)):
            grown = grown and _extend(stamps, rules, state, trial, snake, k, pivot)
        if grown:
            _occupy(stamps, trial, snake[-1])
            _paste(occupied, trial, 0, 0)
            return
    snake[:] = -1


@fragment()
def _patch_coordinate(size: Any, n: Any, at: Any) -> Any:
    """Return the coordinate in a patch of n pixels that is as far from the edges as `at` in `size` pixels."""
    return max(min(at, n // 2), at - (size - n))


@fragment()
def _paint(layer: Array, stamps: Stamps, snakes: Array) -> None:
    """Paste the paddles of snakes (S, K, 3) onto a layer."""
    half = stamps.paddle.shape[1] // 2
    for s in range(snakes.shape[0]):
        for k in range(snakes.shape[1]):
            if snakes[s, k, 2] >= 0:
                _paste(layer, stamps.paddle[snakes[s, k, 2]], snakes[s, k, 0] - half, snakes[s, k, 1] - half)


@fragment(makes_arrays=True)
def _image(
    stamps: Stamps, rules: Rules, state: Array, targets: Array, distractors: Array, markers: Array, layers: Array
) -> Any:
    """Place and paint one image. Return its label, or -1 if the targets did not fit."""
    occupied = np.empty((rules.size, rules.size), np.uint8)
    for _ in range(rules.max_attempts):
        if _place_targets(stamps, rules, state, occupied, targets):
            for d in range(len(distractors)):
                _place_distractor(stamps, rules, state, occupied, distractors[d])
            label, first = _random_below(state, 2), _random_below(state, 2)
            last = first if label == 1 else 1 - first
            for axis in range(2):
                markers[0, axis] = targets[first, 0, axis]
                markers[1, axis] = targets[last, -1, axis]
            _paint(layers[0], stamps, targets)
            _paint(layers[1], stamps, distractors)
            n = len(stamps.disc)
            for m in range(2):
                i, j = _patch_coordinate(rules.size, n, markers[m, 0]), _patch_coordinate(rules.size, n, markers[m, 1])
                _paste(layers[2], stamps.disc[i, j], markers[m, 0] - i, markers[m, 1] - j)
            return label
    return -1


@compiled
def draw(stamps: Stamps, rules: Rules, keys: Array, rows: Array, out: tuple[Array, Array, Array, Array, Array]) -> None:
    """Draw the images of these rows into `out`, the fields of Placements.

    Shapes: targets (images, 2, K, 3), distractors (images, D, K', 3), markers (images, 2, 2), layers (images, 3, size,
    size) and labels (images,).
    """
    targets, distractors, markers, layers, labels = out
    for i in rows:
        state = np.full(1, keys[i])
        labels[i] = _image(stamps, rules, state, targets[i], distractors[i], markers[i], layers[i])
        if labels[i] < 0:
            return
