"""The page of the delay system shows what the equations give."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page

from delayssm.system import reference
from delayssm.system.memory import History, Rings
from tests.playground.conftest import Open

SETTINGS: list[dict[str, float]] = [
    {},  # as the page begins
    {"decay": 0.3, "frequency": 0.25, "p": 0.1, "phase": 1, "delay": 1},
    {"decay": 0.005, "frequency": 0, "p": 0.95, "phase": -0.4, "delay": 2.75},
    {"decay": 0.0001, "frequency": 1, "p": 0.5, "phase": 0.5, "delay": 300},
    {"decay": 0.04, "frequency": 0.01, "p": 0.99, "phase": 1, "delay": 199.35, "interpolation": 0},
    {"decay": 1, "frequency": 0.7, "p": 0.01, "phase": 0, "delay": 120.5, "steps": 1000},
]
DEFAULTS = {"decay": 0.02, "frequency": 0.05, "p": 0.3, "phase": 0, "delay": 60.5, "interpolation": 1, "steps": 400}
DRAWN = "new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


def _channel(setting: dict[str, float]) -> reference.Channel:
    """Return the system of a setting by the equations of the paper, with a step size of 1."""
    s = {**DEFAULTS, **setting}
    channel = reference.discretize(
        nu_dt=math.log(math.expm1(1)), nu_re=[math.log(s["decay"])], nu_im=[math.pi * s["frequency"]],
        r=[math.log(s["p"] / (1 - s["p"]))], theta=[math.pi * s["phase"]], nu_tau=0.0, B=[1], C=[1], max_delay=302,
    )  # fmt: skip
    k = math.floor(s["delay"])
    return replace(channel, k=k, alpha=(s["delay"] - k) * s["interpolation"])


def _shown(page: Page, figure: str) -> dict[str, Any]:
    """Return what a figure shows, as numbers."""
    page.evaluate(DRAWN)
    shown: dict[str, Any] = page.evaluate(
        f"""() => {{
            const {{ curves, points }} = figures.{figure}.shown;
            return {{
                curves: curves.map(curve => Array.from(curve.y)),
                points: points.map(({{ re, im }}) => [Array.from(re), Array.from(im)]),
            }};
        }}"""
    )
    return shown


def _check(page: Page, setting: dict[str, float]) -> None:
    """Compare all figures with the system of a setting."""
    channel = _channel(setting)
    (kernel,) = _shown(page, "kernel")["curves"]
    expected = reference.kernel(channel, len(kernel), 302)
    assert len(kernel) == setting.get("steps", DEFAULTS["steps"])
    np.testing.assert_allclose(kernel, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())

    parts = np.array(_shown(page, "echoes")["curves"])
    heard = min(len(kernel), 4 * channel.k)  # until the first echo that is not drawn
    np.testing.assert_allclose(parts.sum(0)[:heard], expected[:heard], atol=1e-5 * np.abs(expected).max())

    (gain,) = _shown(page, "response")["curves"]
    expected = 20 * np.log10(_gain(channel, np.linspace(0, math.pi, len(gain))))
    np.testing.assert_allclose(gain, expected, rtol=1e-5, atol=1e-5)

    _, (re_, im) = _shown(page, "poles")["points"]
    poles, true = np.array(re_) + 1j * np.array(im), np.linalg.eigvals(reference.companion(channel, 0))
    true = true[np.argsort(-np.abs(true))][: len(poles)]  # without those at 0, which a system without alpha has
    assert len(poles) == channel.k + (channel.alpha > 0)
    distance = np.abs(poles[:, None] - true)
    assert (distance.min(0) <= 1e-5 * np.abs(true)).all()
    assert sorted(distance.argmin(1)) == list(range(len(poles)))
    radius = float(page.inner_text("#radius"))
    assert radius == pytest.approx(np.abs(true).max(), rel=1e-6)
    assert float(page.inner_text("#margin")) == pytest.approx(
        1 - abs(channel.lam[0]) - abs(channel.mu[0]), rel=1e-3, abs=1e-9
    )


def _gain(channel: reference.Channel, omega: reference.Real) -> reference.Real:
    """Return |K(e^(i omega))|, the sum of a mode and its conjugate."""
    u = np.exp(-1j * omega)
    v = u**channel.k * ((1 - channel.alpha) + channel.alpha * u)
    modes = ((channel.lam, channel.mu, channel.b), (channel.lam.conj(), channel.mu.conj(), channel.b.conj()))
    return np.abs(sum(b / (1 - lam * u - mu * v) for lam, mu, b in modes))


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_link_shows_its_setting(visit: Open, setting: dict[str, float]) -> None:
    page = visit("index.html#" + "&".join(f"{name}={value}" for name, value in setting.items()))
    _check(page, setting)


def test_sliders_move_the_curves(visit: Open) -> None:
    page = visit("index.html")
    setting: dict[str, float] = {}
    for name, value in {"frequency": 0.31, "p": 0.77, "phase": -1, "delay": 33.25, "steps": 250}.items():
        page.fill(f"input#{name}", str(value))
        setting[name] = value
    page.focus("input#decay")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    decay = page.input_value("#decay ~ input[type=number], .control:has(#decay) input[type=number]")
    assert 0.02 < float(decay) < 0.022
    _check(page, {**setting, "decay": float(decay)})
    page.uncheck("input#interpolation")
    _check(page, {**setting, "decay": float(decay), "interpolation": 0})
    # The address has everything that was set.
    address = page.evaluate("location.hash")
    page.goto("about:blank")
    _check(visit(f"index.html{address}"), {**setting, "decay": float(decay), "interpolation": 0})


def test_a_curve_is_drawn_where_its_values_are(visit: Open) -> None:
    page = visit("index.html")
    page.fill(".control:has(#delay) input[type=number]", "47.5")
    page.keyboard.press("Tab")
    (values,) = _shown(page, "kernel")["curves"]
    path = page.get_attribute("#kernel .curve", "d") or ""
    x, y = np.array(
        [[float(number) for number in re.findall(r"[\d.]+", point)] for point in re.split("[ML]", path)[1:]]
    ).T
    for places, numbers in ((x, np.arange(len(values))), (y, np.array(values))):
        line = np.polyfit(numbers, places, 1)
        assert np.abs(np.polyval(line, numbers) - places).max() <= 0.06
        assert np.ptp(places) > 100


def test_a_system_without_feedback_has_one_pole(visit: Open) -> None:
    page = visit("index.html#p=0")
    assert np.array(_shown(page, "poles")["points"]).shape == (2, 2, 1)
    assert np.abs(_shown(page, "echoes")["curves"][1:]).max() == 0


def test_poles_are_roots_for_any_setting(visit: Open) -> None:
    """Residuals are those of rounding, and the roots add up to what the coefficients say: none is found twice."""
    page, random = visit("index.html"), np.random.default_rng(0)
    for _ in range(60):
        lam, mu = (complex(*random.normal(size=2)) for _ in range(2))
        scale = random.choice([0.5, 0.999, 1 - 1e-6]) / (abs(lam) + 1)
        lam, mu = lam * scale, mu / abs(mu) * scale * 10.0 ** random.choice([0, -3, -12])
        k, alpha = int(random.integers(1, 300)), float(random.choice([0, 1e-9, 0.5, 0.999]))
        system = {"lam": [lam.real, lam.imag], "mu": [mu.real, mu.imag], "k": k, "alpha": alpha}
        pairs = np.array(page.evaluate("system => poles(system)", system))
        z = pairs[:, 0] + 1j * pairs[:, 1]
        terms = np.stack([z ** (k + 1), -lam * z**k, -mu * (1 - alpha) * z, np.full_like(z, -mu * alpha)])
        assert len(z) == k + (alpha > 0)
        assert (np.abs(terms.sum(0)) <= 1e-12 * np.abs(terms).sum(0)).all()
        assert np.abs(z).max() < 1
        # At k = 1 the coefficient of z has two parts.
        assert z.sum() == pytest.approx(lam + (mu * (1 - alpha) if k == 1 else 0), abs=1e-11)


@pytest.mark.parametrize(("delay", "modes", "tokens"), [(1, 1, 64), (60.5, 16, 1000), (300, 64, 1_000_000)])
def test_memories_are_those_of_the_library(visit: Open, delay: float, modes: int, tokens: int) -> None:
    page = visit(f"index.html#delay={delay}&modes={modes}&tokens={tokens}")
    page.evaluate(DRAWN)
    shown = {
        name: int(page.inner_text(f"#{name}").replace(",", ""))
        for name in ("rings-numbers", "rings-bytes", "history-numbers", "history-bytes")
    }
    k = torch.tensor([int(delay)])
    rings = Rings.zeros(1, k, modes, torch.float32, None)
    assert shown["rings-numbers"] == sum(t.numel() for t in rings.tensors().values())
    assert shown["rings-bytes"] == Rings.bytes_for(k, modes, torch.float32)
    assert shown["history-bytes"] == History.bytes_for(tokens, 1, torch.float32) == 4 * shown["history-numbers"]


def test_a_wrong_link_says_what_is_wrong(visit: Open) -> None:
    page = visit("index.html#decay=7&delay=90&modes=1.5&speed=2")
    assert page.inner_text("#note") == (
        "Parts of this link were left out: decay must be a number from 0.0001 to 1, not 7; "
        "modes must be a whole number from 1 to 64, not 1.5; there is no setting called speed."
    )
    _check(page, {"delay": 90})


def test_examples_are_links_that_work(visit: Open) -> None:
    page = visit("index.html")
    for link in page.query_selector_all(".presets a"):
        link.click()
        assert page.inner_text("#note") == ""
        before = page.evaluate("controls.values")
        assert f"#decay={before['decay']}&frequency={before['frequency']}" in (link.get_attribute("href") or "")


def test_every_control_has_a_name(visit: Open) -> None:
    page = visit("index.html")
    for control in page.query_selector_all("input"):
        name = control.evaluate("input => input.ariaLabel || input.labels[0].textContent.trim()")
        assert len(name) > 4
    for figure in page.query_selector_all("svg[role=img]"):
        assert figure.evaluate("svg => svg.querySelector('title').textContent.length") > 20


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_a_page_fits_its_window(visit: Open, width: int, scheme: str) -> None:
    page = visit("index.html")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(22, 25, 29)" if scheme == "dark" else "rgb(255, 255, 255)")
