"""Statistics of Pathfinder images of 32 x 32 pixels, published or generated, computed from pixels alone."""

import numpy as np
from numpy.typing import NDArray

#: The four brightest pixels of a marker with a peak of 255, by offset from its centre.
_CORE = {(-1, -1): 228, (-1, 0): 254, (0, -1): 254, (0, 0): 255}

Measures = dict[str, NDArray[np.float64]]


def measures(images: NDArray[np.uint8]) -> Measures:
    """Return each statistic, (images,), of images (images, 32, 32)."""
    flat = images.reshape(len(images), -1).astype(np.float64)
    left, up = (np.roll(images, 4, axis).astype(np.float64) for axis in (2, 1))
    scale, distance = _markers(images)
    return {
        "mean": flat.mean(axis=1),
        "dark": (flat == 0).mean(axis=1),
        "grey": ((flat > 100) & (flat <= 200)).mean(axis=1),
        "bright": (flat > 200).mean(axis=1),
        "four across": (images * left)[:, :, 4:].mean(axis=(1, 2)),
        "four down": (images * up)[:, 4:].mean(axis=(1, 2)),
        "edge": images[:, :3].mean(axis=(1, 2)),
        "ink": _ink(images, scale),
        "marker": scale,
        "distance": distance,
    }


def _markers(images: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the brightness of the markers, at most 1, and the distance between them.

    A marker is where the brightest disc fits under the image. The second marker is the next such position.
    """
    fit = np.min([np.roll(images, (-y, -x), (1, 2)) / value for (y, x), value in _CORE.items()], axis=0)
    fit[:, 0] = fit[:, :, 0] = 0  # np.roll wraps around the edge there
    first = fit.reshape(len(fit), -1).argmax(axis=1)
    rows = np.arange(len(fit))
    brightness = fit.reshape(len(fit), -1)[rows, first]
    fit.reshape(len(fit), -1)[rows, first] = 0
    second = fit.reshape(len(fit), -1).argmax(axis=1)
    return np.minimum(brightness, 1), np.hypot(first // 32 - second // 32, first % 32 - second % 32)


def _ink(images: NDArray[np.uint8], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the number of pixels on contours, about 2.5 for each paddle that crosses no other."""
    return (images > 60 * scale[:, None, None]).sum(axis=(1, 2)).astype(np.float64)


def summary(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> dict[str, NDArray[np.float32]]:
    """Return the content of tests/support/pathfinder32_hard.npz, which was computed from 1,100 published images."""
    counts = np.stack([np.bincount(image.ravel(), minlength=256) for image in images])
    statistics = {
        **measures(images),
        "labels": labels,
        "values": counts.mean(axis=0),
        "values spread": counts.std(axis=0),
        "pixels": images.mean(axis=0),
    }
    return {name: np.asarray(value, np.float32) for name, value in statistics.items()}
