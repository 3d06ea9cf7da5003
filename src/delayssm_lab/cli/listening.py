"""Hear a recording word by word."""

from __future__ import annotations

from pathlib import Path

import tyro


def listen(
    recording: tyro.conf.Positional[Path],
    run: Path,
    chunk: int = 1000,
    out: Path | None = None,
) -> None:
    """Listen to a recording as it would come from a microphone, and draw what the model thinks meanwhile.

    Args:
        recording: WAV, 16 bit, one channel, 16 kHz.
        run: directory of a trained model: delayssm train sc-ar ds4d.
        chunk: samples at a time.
        out: the picture; by default in the working directory, by the name of the recording.
    """
    import torch

    from delayssm.storage import files
    from delayssm_lab.report import listening as ears
    from delayssm_lab.report.drawing import png

    samples = ears.read(recording)
    listener = ears.Listener(run)
    heard, parts = 0, []
    for part in ears.chunks(samples, chunk):
        parts.append(listener.hear(part))
        heard += len(part)
        if len(parts[-1]):
            p, word = parts[-1][-1].max(-1)
            said = listener.task.words[int(word)]
            print(f"{heard / listener.task.rate:6.2f} s  {said:10} {float(p):.2f}", flush=True)
    if not sum(map(len, parts)):
        raise ValueError(f"{recording} is too short for one answer")
    probabilities = torch.cat(parts).numpy()
    path = out or Path(f"{recording.stem}.png")
    files.write(path, png(ears.figure(samples, probabilities, listener.task.words)))
    print(f"Look at {path.resolve()}")
