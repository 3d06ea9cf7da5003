"""Tests of files that are complete at every moment."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from delayssm.storage import files


def test_a_name_that_is_too_long_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)  # fits, but not with what the file is called while it is written
    with pytest.raises(OSError, match=r"could not write .*x: File name too long"):
        files.write(path, b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"could not make the directory .*file/below: Not a directory"):
        files.make_directory(tmp_path / "file" / "below")


def test_threads_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([i]) * 100_000 for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda content: [files.write(path, content) for _ in range(20)], contents))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
