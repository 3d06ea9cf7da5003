"""Use two trained models, then train DS4D and S4D on delayed copying for a few minutes and compare them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from delayssm_lab.cli.common import check_at_least, leave


def command(out: Path = Path("runs/demo"), steps: int = 400) -> None:
    """Use two trained models, then train DS4D and S4D on delayed copying for a few minutes and compare them.

    One model listens to a spoken word, and one forecasts a chaotic series; both come with the package. After 400
    steps of training, DS4D has nearly learned to copy, while S4D needs many more. Everything ends in pictures.

    Args:
        out: Directory of the pictures, the runs and the report.
        steps: Number of training steps.
    """
    from delayssm.storage import files
    from delayssm_lab import pretrained
    from delayssm_lab.cli import listen
    from delayssm_lab.recipes.delayed import grid
    from delayssm_lab.report import page
    from delayssm_lab.training.sweep import sweep

    check_at_least(1, steps=steps)
    files.make_directory(out)
    print('A trained model hears a recording of "yes", and says what it thinks after each sixteenth of a second:')
    listen.command(pretrained.directory("listener") / "yes.wav", out=out / "listener.png")
    forecast(out / "forecast.png")
    print("Now DS4D and S4D learn to copy what they saw 1,056 steps before.", flush=True)
    runs = [
        replace(run, training=replace(run.training, steps=steps, batch_size=16, evaluate_every=25, validation_size=64))
        for run in grid(["copy-fixed"], ["ds4d", "s4d"], "paper", [4e-3])
    ]
    failed = [outcome for outcome in sweep(runs, out, workers=2) if outcome.error]
    if failed:
        leave(1, "\n".join(map(str, failed)))
    print(f"Wrote {page.write([out], out / 'report').resolve()}; open it in a browser.")


def forecast(path: Path) -> None:
    """Let the forecaster of this package look ahead in a series that it has not seen, and draw that to a file."""
    import numpy as np

    from delayssm.estimators import DelayForecaster
    from delayssm.storage import files
    from delayssm_lab import pretrained
    from delayssm_lab.data.generate.mackey_glass import mackey_glass
    from delayssm_lab.report.drawing import png
    from delayssm_lab.report.figures import forecasts

    forecaster = DelayForecaster.load(pretrained.directory("mackey-glass"))
    ahead = int(np.max(forecaster.horizon))
    (series,) = mackey_glass(1, 1500, seed=1)
    predicted = np.asarray(forecaster.historical_forecasts(series))[:-ahead, 0]
    true = series[ahead:]
    error = np.sqrt(np.square(predicted - true).mean() / np.square(true).mean())
    files.write(path, png(forecasts(true[-500:], predicted[-500:], ahead)))
    print(
        f"Another one has forecast a chaotic series {ahead} steps ahead, with an error of {100 * error:.1f} %. "
        f"Wrote {path.resolve()}",
        flush=True,
    )
