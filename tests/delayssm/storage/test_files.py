"""Tests of files that are complete at every moment."""

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
