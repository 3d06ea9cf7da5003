"""Classify a recording chunk by chunk and plot the running prediction."""

from __future__ import annotations

from pathlib import Path

import tyro

from delayssm_lab.cli.common import check_at_least


def command(
    recording: tyro.conf.Positional[Path], model: Path | None = None, chunk: int = 1000, out: Path | None = None
) -> None:
    """Classify a recording chunk by chunk and plot the running prediction.

    The model streams: it sees the recording in chunks, as from a microphone, and prints its prediction after each one.

    Args:
        recording: WAV file with 16 bits, one channel and 16 kHz.
        model: Directory of a run of `delayssm train sc-ar ds4d`, or of any causal run on Speech Commands, or of a model
            that such a run has saved. By default the model that comes with this package, which knows ten words: yes,
            no, up, down, left, right, on, off, stop, go.
        chunk: Number of audio samples in a chunk.
        out: File of the plot. By default NAME.png in the working directory, with the name of the recording.
    """
    import torch

    from delayssm.storage import files
    from delayssm_lab.listener import Listener, chunks, read_wav
    from delayssm_lab.report.drawing import png
    from delayssm_lab.report.figures import running_predictions

    check_at_least(1, chunk=chunk)
    audio = read_wav(recording)
    listener = Listener.pretrained() if model is None else Listener.load(model)
    rate, words = listener.task.rate, listener.task.words
    position, predictions = 0, []
    for samples in chunks(audio, chunk):
        probabilities = listener.hear(samples)
        position += len(samples)
        predictions.append(probabilities)
        if len(probabilities):
            probability, word = probabilities[-1].max(-1)
            print(f"{position / rate:6.2f} s  {words[int(word)]:10} {float(probability):.2f}", flush=True)
    if not sum(map(len, predictions)):
        raise ValueError(f"{recording} is too short for a prediction")
    path = out or Path(f"{recording.stem}.png")
    files.write(path, png(running_predictions(audio, torch.cat(predictions).numpy(), words)))
    print(f"Wrote {path.resolve()}")
