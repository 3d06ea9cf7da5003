"""The models in the page answer as they do in Python."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Page

from delayssm.estimators import DelayForecaster
from delayssm_lab import pretrained
from delayssm_lab.data.generate.mackey_glass import mackey_glass
from delayssm_lab.listener import Listener, read_wav
from docs import embed
from tests.playground.conftest import PLAYGROUND, Open

PATIENCE = 100_000  # ms, for a machine with much else to do


def _said(page: Page, ending: str) -> str:
    """Wait until the page has said something, and return it."""
    page.wait_for_function(
        f"document.getElementById('said').textContent.match(/{ending}$|did not work|loud enough/)", timeout=PATIENCE
    )
    page.wait_for_function("!document.getElementById('microphone').disabled")
    return page.inner_text("#said")


def test_the_listener_hears_what_it_hears_in_python(visit: Open) -> None:
    page = visit("listener.html")
    clips = {path.stem: path for path in embed.clips()}
    for word in ("yes", "left"):
        expected = Listener.pretrained().hear(read_wav(clips[word])).numpy()
        page.click(f"button:has-text('{word}')")
        best = Listener.pretrained().task.words[int(expected[-1].argmax())]
        said = _said(page, f"The word is “{word}”.")
        assert said == f"The listener hears “{best}” ({100 * expected[-1].max():.0f} %). The word is “{word}”."
        found = np.array(page.evaluate("heard.probabilities"))
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-4
        ranking = page.inner_text("#ranking").split()
        assert ranking[0] == best
        assert set(Listener.pretrained().task.words) <= set(ranking)


def test_the_clips_are_heard_as_the_page_says() -> None:
    words = Listener.pretrained().task.words
    heard = {clip.stem: words[int(Listener.pretrained().hear(read_wav(clip))[-1].argmax())] for clip in embed.clips()}
    assert sum(word == answer for word, answer in heard.items()) == 4
    assert "it gets four right and two wrong" in " ".join((PLAYGROUND / "listener.html").read_text().split())


@pytest.mark.slow
def test_the_microphone_is_heard(visit: Open) -> None:
    page = visit("listener.html")
    page.click("#microphone")
    assert _said(page, "\\)\\.").startswith("The listener hears “")
    found = np.array(page.evaluate("heard.probabilities"))
    assert len(found) >= 2000
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-9)


def test_means_over_samples_of_any_rate(visit: Open) -> None:
    page = visit("listener.html")
    samples = np.random.default_rng(0).normal(size=1000)
    for width in (8, 22.05, 1):
        found = page.evaluate(
            """([samples, width]) => {
                const averages = new Averages(width);
                return [...averages.push(samples.slice(0, 333)), ...averages.push(samples.slice(333))];
            }""",
            [samples.tolist(), width],
        )
        sums = np.interp(np.arange(int(1000 / width) + 1) * width, np.arange(1001), np.append(0, samples.cumsum()))
        np.testing.assert_allclose(found, np.diff(sums) / width, atol=1e-9)


@pytest.fixture
def address() -> Iterator[str]:
    """Serve the playground from this machine."""
    handler = functools.partial(_Silent, directory=PLAYGROUND)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep the log of a test clean."""


def _check_forecaster(page: Page) -> None:
    """Compare the forecasts of a series, and their error, with those of the estimator."""
    values = mackey_glass(1, 400, seed=1)[0]
    forecaster = DelayForecaster.load(pretrained.directory("mackey-glass"))
    expected = np.array(forecaster.historical_forecasts(values)).reshape(len(values))
    found, error = page.evaluate(
        """async (values) => {
            const following = await Following.begin();
            for (let i = 0; i < values.length; i += 50) await following.push(values.slice(i, i + 50));
            return [following.forecasts, following.error()];
        }""",
        values.tolist(),
    )
    assert np.abs(found - expected).max() < 1e-4
    true = values[15:]
    assert error == pytest.approx(100 * np.sqrt(((expected[:-15] - true) ** 2).mean() / (true**2).mean()), rel=1e-3)


def test_the_forecaster_says_what_it_says_in_python(visit: Open) -> None:
    _check_forecaster(visit("forecaster.html"))


@pytest.mark.slow
def test_a_server_can_serve_the_pages(visit: Open, address: str) -> None:
    _check_forecaster(visit(f"{address}/forecaster.html"))


def test_the_equation_is_that_of_the_laboratory(visit: Open) -> None:
    page = visit("forecaster.html")
    past = 1.2 + 0.2 * (np.random.RandomState(3).rand(170) - 0.5)
    found = np.array(page.evaluate("past => Array.from(new MackeyGlass(past).run(200))", past.tolist()))
    expected = mackey_glass(1, 200, washout=0, seed=3)[0]
    np.testing.assert_allclose(found - found.mean(), expected, atol=1e-10)


@pytest.mark.slow
def test_values_arrive_until_the_button_is_pressed(visit: Open) -> None:
    page = visit("forecaster.html#rate=200")
    page.click("#start")
    page.wait_for_function("following?.values.length > 60", timeout=PATIENCE)
    page.click("#jolt")
    page.click("#start")
    assert page.inner_text("#start") == "Go on"
    page.click("#again")
    page.click("#start")
    page.wait_for_function("!anew && following.values.length > 40", timeout=PATIENCE)
    ahead, forecasts, start = page.evaluate(
        "[following.ahead, plot.shown.curves[1].y.length, plot.shown.curves[1].x[0]]"
    )
    assert (ahead, start) == (15, 15)
    assert forecasts > 40
