"""Tensors in files: what is read is one of the files that were written, whatever another thread writes meanwhile."""

import threading
from pathlib import Path

import torch

from delayssm.storage import tensors as tensor_file

KIND = "tensors of a test 1"


def test_a_file_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    path, done = tmp_path / "file.safetensors", threading.Event()

    def write(count: int) -> None:
        weights = {name: torch.full((64,), count) for name in "abcdefgh"}
        tensor_file.write(path, KIND, weights, {"count": str(count)})

    def write_often() -> None:
        count = 0
        while not done.is_set():
            write(count := count + 1)

    write(0)
    writer = threading.Thread(target=write_often)
    writer.start()
    try:
        for _ in range(300):
            tensors, about = tensor_file.read(path, KIND)
            assert {int(t) for t in torch.cat(list(tensors.values())).unique()} == {int(about["count"])}
    finally:
        done.set()
        writer.join()
