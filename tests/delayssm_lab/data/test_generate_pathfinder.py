"""Pathfinder images: reproducible by number, correctly labelled, and distributed as the published ones."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from delayssm_lab.data.generate.pathfinder import PathfinderGenerator, Placements, pathfinder_generator
from delayssm_lab.report.drawing import png
from delayssm_lab.studies.pathfinder_images import images_figure, montage
from tests.support.pathfinder_measures import measures, summary

PUBLISHED = Path(__file__).parents[2] / "support" / "pathfinder32_hard.npz"
LEVELS = [
    pathfinder_generator(32, 6),
    pathfinder_generator(32, 9),
    pathfinder_generator(32, 14),
    pathfinder_generator(128, 14),
]
ONE_MARGIN = [replace(level, margins=level.margins[-1:]) for level in LEVELS]
NAMES = [f"{level.size}-{level.contour_length}" for level in LEVELS]
HARD = pathfinder_generator(32, 14)
HASHES = ["c3567d62a27d", "4898abd87f0d", "ccedf790894d", "d5bfc9a1a7dd"]


@given(st.integers(0, 2**63), st.integers(0, 10**9), st.integers(1, 40), st.integers(0, 39))
@settings(max_examples=10)
def test_an_image_depends_on_seed_and_number_alone(seed: int, first: int, count: int, at: int) -> None:
    images, labels = HARD.images(count, seed, first)
    alone, label = HARD.images(1, seed, first + at % count)
    assert np.array_equal(images[at % count], alone[0])
    assert labels[at % count] == label[0]


def test_images_differ_between_seeds_and_numbers() -> None:
    rows = np.concatenate([HARD.images(50, 0)[0], HARD.images(50, 1)[0]])
    assert len(np.unique(rows, axis=0)) == 100


def test_both_margins_of_an_image_are_drawn_in_place() -> None:
    level = pathfinder_generator(128, 14)
    images, labels = level.images(6, 0)
    for number in range(6):
        image, label = level.images(1, 0, number)
        assert np.array_equal(image[0], images[number])
        assert label[0] == labels[number]


def test_images_are_what_they_were() -> None:
    """Detect changes of the images. If a new version of Pillow draws differently, say so in the release notes."""
    found = [hashlib.sha256(level.images(4, 0)[0].tobytes()).hexdigest()[:12] for level in LEVELS]
    assert found == HASHES


@pytest.mark.parametrize("level", LEVELS, ids=NAMES)
def test_markers_are_at_ends_of_the_same_target_where_the_label_is_1(level: PathfinderGenerator) -> None:
    placed = level.placements(40, 1)
    starts, ends = placed.targets[:, :, 0, :2], placed.targets[:, :, -1, :2]
    apart = (ends[:, 0] != ends[:, 1]).any(axis=1)  # rarely both targets end in the same pixel, as in published images
    assert apart.mean() > 0.9
    starts, ends, placed = starts[apart], ends[apart], Placements(*(each[apart] for each in placed))
    begun = (placed.markers[:, :1] == starts).all(axis=2)
    ended = (placed.markers[:, 1:] == ends).all(axis=2)
    assert (begun.sum(axis=1) == 1).all()
    assert ((begun & ended).any(axis=1) == (placed.labels == 1)).all()
    assert ((begun & ~ended).any(axis=1) == (placed.labels == 0)).all()
    assert set(placed.labels.tolist()) == {0, 1}


def test_labels_are_a_fair_coin_that_no_place_tells() -> None:
    placed = HARD.placements(4000, 2)
    error = 0.5 / np.sqrt(4000)
    assert abs(placed.labels.mean() - 0.5) < 4 * error
    first = (placed.markers[:, 0] == placed.targets[:, 0, 0, :2]).all(axis=1)
    assert abs(first.mean() - 0.5) < 4 * error
    assert abs((first == placed.labels).mean() - 0.5) < 4 * error


@pytest.mark.parametrize("level", ONE_MARGIN, ids=NAMES)
def test_contours_have_their_form(level: PathfinderGenerator) -> None:
    placed = level.placements(40, 3)
    assert placed.targets.shape == (40, 2, level.contour_length, 3)
    assert placed.distractors.shape == (40, level.distractors, level.distractor_length, 3)
    apart = np.linalg.norm(placed.targets[:, 0, 0, :2] - placed.targets[:, 1, 0, :2], axis=1)
    assert (abs(apart - level.seed_distance) <= np.sqrt(0.5)).all()
    margin = level.margins[0]
    step, radius = level.paddle_length + 2 * margin, level.paddle_length + margin
    circle = level._stamps(margin).circle
    stands = placed.distractors[:, :, 0, 2] >= 0
    for contours in (placed.targets.reshape(-1, level.contour_length, 3), placed.distractors[stands]):
        assert ((contours[..., :2] >= 0) & (contours[..., :2] < level.size)).all()
        assert (contours[:, 0, 2] < 360).all()
        to = circle[contours[:, 1:, 2] - 360]
        turns = np.diff(np.arctan2(to[..., 0], to[..., 1]), axis=1)
        assert (np.cos(level.continuity * np.arccos(np.cos(turns))) > 0).all()  # less than a right angle / continuity
        steps = np.linalg.norm(np.diff(contours[:, 1:, :2], axis=1), axis=2)
        assert steps.max(initial=step) <= step + np.sqrt(2) * radius + 2 * np.sqrt(2)  # a right angle, whole pixels
    steps = np.linalg.norm(np.diff(placed.targets[:, :, 1:, :2], axis=2), axis=3)
    assert abs(steps.mean() - step) < 1


@pytest.mark.parametrize("level", ONE_MARGIN, ids=NAMES)
def test_a_paddle_keeps_clear_of_all_before_it(level: PathfinderGenerator) -> None:
    """Check the masks one by one in plain numpy."""
    placed = level.placements(10, 4)
    for image in range(10):
        taken = _padding(level)
        before = [None, None]
        for paddles in placed.targets[image].swapaxes(0, 1):
            for snake, paddle in enumerate(paddles):
                mask = _mask(level, paddle)
                if before[snake] is not None:
                    assert (taken + mask).max() < 1.8
                    taken = np.maximum(taken, before[snake])
                before[snake] = mask
        taken = np.maximum(taken, before[1])
        for contour in placed.distractors[image]:
            if contour[0, 2] >= 0:
                masks = [_mask(level, paddle) for paddle in contour]
                for k in range(1, len(masks)):
                    assert np.max([taken + masks[k], *(m + masks[k] for m in masks[: k - 1])]) < 1.8
                taken = np.max([taken, *masks], axis=0)


def _padding(level: PathfinderGenerator) -> NDArray[np.float64]:
    inner = level.size - 2 * level.padding
    return np.pad(np.zeros((inner, inner)), level.padding, constant_values=1)


def _mask(level: PathfinderGenerator, paddle: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mask of a paddle in an otherwise empty image."""
    stamp = level._stamps(level.margins[-1]).mask[paddle[2]] / 255
    half = len(stamp) // 2
    wide = np.zeros((level.size + 2 * half, level.size + 2 * half))
    wide[paddle[0] : paddle[0] + 2 * half + 1, paddle[1] : paddle[1] + 2 * half + 1] = stamp
    return wide[half:-half, half:-half]


@pytest.mark.parametrize("level", LEVELS, ids=NAMES)
def test_paddles_cover_the_way_to_the_next_one(level: PathfinderGenerator) -> None:
    """Check that paddles and markers are drawn where they were placed."""
    placed = level.placements(10, 5)
    for image in range(10):
        for layer, contours in ((0, placed.targets[image]), (1, placed.distractors[image])):
            paddles = contours.reshape(-1, 3)
            paddles = paddles[paddles[:, 2] >= 0]
            inked = np.pad(placed.layers[image, layer], 1)
            near = [inked[y : y + 3, x : x + 3].max() for y, x, _ in paddles]
            assert min(near, default=255) > 60
        for y, x in placed.markers[image]:
            assert placed.layers[image, 2, y, x] > 250


@pytest.fixture(scope="module")
def hard() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    images, labels = HARD.images(4400, 6)
    return images.reshape(-1, 32, 32), labels


@pytest.fixture(scope="module")
def published() -> dict[str, NDArray[np.float32]]:
    with np.load(PUBLISHED, allow_pickle=False) as file:
        return dict(file)


Images = tuple[NDArray[np.uint8], NDArray[np.uint8]]
Published = dict[str, NDArray[np.float32]]


def test_markers_are_found_in_pixels(hard: Images) -> None:
    """Check the measured distances against the true ones."""
    placed = HARD.placements(500, 6)
    true = np.linalg.norm(placed.markers[:, 0] - placed.markers[:, 1], axis=1)
    assert (abs(measures(hard[0][:500])["distance"] - true) < 1e-6).mean() > 0.99


@pytest.mark.parametrize("name", measures(np.ones((1, 32, 32), np.uint8)))
def test_measures_are_distributed_as_published(name: str, hard: Images, published: Published) -> None:
    """Compare the distributions by a Kolmogorov-Smirnov test at the 1 % level."""
    ours = measures(hard[0])[name].astype(np.float32)
    assert _distance(ours, published[name]) < _critical(len(ours), len(published[name]))


@pytest.mark.parametrize("label", [0, 1])
def test_ends_are_as_far_apart_as_published(label: int, hard: Images, published: Published) -> None:
    ours = measures(hard[0])["distance"][hard[1] == label].astype(np.float32)
    theirs = published["distance"][published["labels"] == label]
    assert _distance(ours, theirs) < _critical(len(ours), len(theirs))


def test_a_little_off_would_be_seen(published: Published) -> None:
    """Check that the test fails for slightly straighter turns and for one more distractor."""
    for off, name in ((replace(HARD, continuity=1.15), "four down"), (replace(HARD, distractors=8), "mean")):
        images, _ = off.images(2200, 7)
        ours = measures(images.reshape(-1, 32, 32))[name].astype(np.float32)
        assert _distance(ours, published[name]) > _critical(len(ours), len(published[name]))


def test_pixels_have_the_published_values(hard: Images, published: Published) -> None:
    """Compare the histogram of pixel values, which depends on contrasts, downsampling and rounding."""
    ours = summary(*hard)
    n, m = len(hard[0]), len(published["labels"])
    error = np.hypot(ours["values spread"] / np.sqrt(n), np.maximum(published["values spread"], 0.05) / np.sqrt(m))
    assert (abs(ours["values"] - published["values"]) / error).max() < 4
    never = published["values"] == 0
    assert never.sum() == 38
    assert ours["values"][never].sum() < 0.01


def test_pixels_are_as_bright_everywhere_as_published(hard: Images, published: Published) -> None:
    images = hard[0].astype(np.float64)
    error = np.maximum(images.std(axis=0), 1) * np.sqrt(1 / len(images) + 1 / len(published["labels"]))
    off = (images.mean(axis=0) - published["pixels"]) / error
    assert abs(off).max() < 4.5
    assert off.std() < 1.25  # neighbours are not independent
    for axis in (0, 1):
        profile = images.mean(axis=axis + 1)
        error = profile.std(axis=0) * np.sqrt(1 / len(images) + 1 / len(published["labels"]))
        assert (abs(profile.mean(axis=0) - published["pixels"].mean(axis=axis)) / np.maximum(error, 0.02)).max() < 4


def _distance(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    at = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(one), at, side="right") / len(one) for one in (a, b)]
    return float(abs(shares[0] - shares[1]).max())


def _critical(n: int, m: int) -> float:
    return 1.628 * float(np.sqrt(1 / n + 1 / m))


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="need a size of at least 29, not 20"):
        replace(HARD, size=20)
    with pytest.raises(ValueError, match=r"whole number of pixels, not 0\.6"):
        replace(HARD, paddle_thickness=0.3)
    with pytest.raises(ValueError, match="must be at least 1"):
        replace(HARD, margins=())
    with pytest.raises(ValueError, match="no level of size 64 with contours of 14"):
        pathfinder_generator(64, 14)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two contours of 60 paddles did not fit into 32 x 32 pixels"):
        replace(HARD, contour_length=60).images(3, 0)


def test_no_images() -> None:
    images, labels = HARD.images(0, 0)
    assert images.shape == (0, 1024)
    assert labels.shape == (0,)


def test_samples_are_shown_side_by_side() -> None:
    images = np.full((3, 4, 4), 255, np.uint8)
    tiles = montage(images, 2)
    assert tiles.shape == (12, 12)
    assert (tiles == 255).sum() == 3 * 16
    assert (tiles[1:5, 7:11] == 255).all()
    assert (tiles[7:11, 7:11] == 96).all()
    assert [axis.get_title() for axis in images_figure(images, images).axes] == ["original generator", "our generator"]
    assert png(images_figure(images, None)).startswith(b"\x89PNG")
