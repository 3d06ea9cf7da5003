"""Embed models, clips and the runtime into the playground: `python -m docs.embed`.

A page that was opened from disk may run scripts, but may not read files. So the content of FILE stands in the script
FILE.js, compressed, and the page unpacks it. The runtime is embedded again, from a copy of its package, by
`python -m docs.embed --runtime PACKAGE`.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import re
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delayssm import Pretrained
from delayssm.export import export_stream
from delayssm.storage.pretrained import read_about
from delayssm_lab import pretrained
from delayssm_lab.listener import Listener

PLAYGROUND = Path(__file__).parent / "playground"
#: What the package of the runtime has to offer: its interface as it is, and what that loads, embedded.
INTERFACE, LOADED = "ort.wasm.min.js", ("ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")


def packed(path: str, content: bytes) -> str:
    """Return the script that holds the content of a file of the playground."""
    lines = textwrap.wrap(base64.b64encode(gzip.compress(content, mtime=0)).decode(), 120)
    return "\n".join([f'embedded["{path}"] = `', *lines, "`;", ""])


def unpacked(path: str) -> bytes:
    """Return the content that stands in a script of the playground."""
    script = (PLAYGROUND / f"{path}.js").read_text()
    found = re.fullmatch(r'embedded\["(.*)"\] = `([\w+/=\s]*)`;\n', script)
    if found is None or found[1] != path:
        raise ValueError(f"{path}.js does not hold {path}; make it again with `python -m docs.embed`")
    return gzip.decompress(base64.b64decode(found[2]))


def embed(path: str, content: bytes) -> None:
    """Write the script that holds the content of a file of the playground."""
    (PLAYGROUND / f"{path}.js").write_text(packed(path, content))


def embed_models() -> None:
    """Embed the exported models, each with a description of its streams and of its inputs."""
    for name, inputs in (("listener", listener_inputs()), ("mackey-glass", forecaster_inputs())):
        model = Pretrained.from_pretrained(pretrained.directory(name)).eval()
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"{name}.onnx"
            export_stream(model, path)
            about = json.loads(path.with_suffix(".json").read_text())
            embed(f"models/{name}.onnx", path.read_bytes())
        del about["model"]  # what it is made of; the page does not need it
        embed(f"models/{name}.json", json.dumps({**about, **inputs}).encode())


def listener_inputs() -> Mapping[str, Any]:
    """Return how the listener hears 16-bit samples, and what its answers mean."""
    task = Listener.pretrained().task
    return {"rate": task.rate, "scale": task.scale, "every": task.every, "words": task.words}


def forecaster_inputs() -> Mapping[str, Any]:
    """Return how the forecaster scales values, and how many steps it looks ahead."""
    about = read_about(pretrained.directory("mackey-glass"))
    (mean,), (scale,) = about["fitted"]["scaling"].values()
    (ahead,) = about["parameters"]["horizon"]
    return {"mean": mean, "scale": scale, "ahead": ahead}


def clips() -> list[Path]:
    """Return the recordings that the listener can be given."""
    return [pretrained.directory("listener") / "yes.wav", *sorted((PLAYGROUND / "clips").glob("*.wav"))]


def embed_runtime(package: Path) -> None:
    """Copy the interface of the runtime and embed what it loads, from an unpacked package."""
    (PLAYGROUND / "runtime" / INTERFACE).write_bytes((package / "dist" / INTERFACE).read_bytes())
    for name in LOADED:
        embed(f"runtime/{name}", (package / "dist" / name).read_bytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtime", type=Path, metavar="PACKAGE", help="directory of the unpacked onnxruntime-web")
    arguments = parser.parse_args()
    if arguments.runtime:
        embed_runtime(arguments.runtime)
    embed_models()
    for clip in clips():
        embed(f"clips/{clip.name}", clip.read_bytes())
