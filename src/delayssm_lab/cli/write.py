"""Continue a text with a trained language model."""

from __future__ import annotations

from pathlib import Path

import tyro

from delayssm_lab.cli.common import check_at_least, leave


def command(
    model: tyro.conf.Positional[Path],
    prompt: str = "",
    length: int = 500,
    temperature: float = 0.8,
    seed: int | None = None,
) -> None:
    """Continue a text with a trained language model.

    It goes on byte by byte, until the model ends the text.

    Args:
        model: Directory of a run of `delayssm train reviews ds4d`, or of a model that it has saved.
        prompt: Text to continue.
        length: Largest number of bytes to write.
        temperature: Divisor of the logits; 0 takes the most likely byte each time.
        seed: Seed of the choices; the same seed writes the same text. By default another one each time.
    """
    from codecs import getincrementaldecoder

    from delayssm import Pretrained, TokenModel
    from delayssm_lab.tasks.language import START, FilmReviews
    from delayssm_lab.training.checkpoint import model_directory

    check_at_least(1, length=length)
    check_at_least(0, seed=seed)
    writer = Pretrained.from_pretrained(model_directory(model))
    if not isinstance(writer, TokenModel):
        leave(1, f"delayssm: {model} holds a {type(writer).__name__}, which does not write; train one on reviews")
    if writer.vocab_size != FilmReviews.vocab_size:
        leave(1, f"delayssm: {model} has {writer.vocab_size} tokens, which are not bytes; train one on reviews")
    text = [START, *prompt.encode(errors="surrogateescape")]
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    print(prompt, end="", flush=True)
    for byte in writer.generate(text, length, temperature=temperature, seed=seed, stop=START):
        print(decoder.decode(bytes([byte])), end="", flush=True)
    print(decoder.decode(b"", final=True))
