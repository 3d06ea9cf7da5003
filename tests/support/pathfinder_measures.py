"""What is measured of each Pathfinder image of 32 x 32, published or ours. From pixels alone."""

import numpy as np
from numpy.typing import NDArray

#: The four brightest pixels of a marker whose middle is at the last of them, where a marker has 255.
_CORE = {(-1, -1): 228, (-1, 0): 254, (0, -1): 254, (0, 0): 255}

Measures = dict[str, NDArray[np.float64]]


def measures(images: NDArray[np.uint8]) -> Measures:
    """Each (images,), of images (images, 32, 32)."""
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
    """How bright markers are, 1 where nothing is brighter, and how far they are apart.

    A marker is where a disc fits under the image at the brightest; the other is the next such place.
    """
    fit = np.min([np.roll(images, (-y, -x), (1, 2)) / value for (y, x), value in _CORE.items()], axis=0)
    fit[:, 0] = fit[:, :, 0] = 0  # there the core would reach around the edge
    first = fit.reshape(len(fit), -1).argmax(axis=1)
    rows = np.arange(len(fit))
    brightness = fit.reshape(len(fit), -1)[rows, first]
    fit.reshape(len(fit), -1)[rows, first] = 0
    second = fit.reshape(len(fit), -1).argmax(axis=1)
    return np.minimum(brightness, 1), np.hypot(first // 32 - second // 32, first % 32 - second % 32)


def _ink(images: NDArray[np.uint8], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pixels on contours, however bright the image is: about 2.5 for each paddle that crosses no other."""
    return (images > 60 * scale[:, None, None]).sum(axis=(1, 2)).astype(np.float64)


def summary(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> dict[str, NDArray[np.float32]]:
    """All that tests/support/pathfinder32_hard.npz holds, of the 1,100 published images that were at hand."""
    counts = np.stack([np.bincount(image.ravel(), minlength=256) for image in images])
    found = {
        **measures(images),
        "labels": labels,
        "values": counts.mean(axis=0),
        "values spread": counts.std(axis=0),
        "pixels": images.mean(axis=0),
    }
    return {name: np.asarray(value, np.float32) for name, value in found.items()}
