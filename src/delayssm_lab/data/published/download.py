"""Download of published files: verified, complete or absent, and resumed after an interruption."""

from __future__ import annotations

import logging
import shutil
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet, Download, OnProgress, ignore_progress

_CHUNK = 1 << 20
_TIMEOUT = 30.0  # seconds without an answer


def fetch(dataset: DataSet, root: Path, on_progress: OnProgress = ignore_progress) -> list[Path]:
    """Download the files of a data set that are not below `root`, and return their paths."""
    return [_fetch(download, root / dataset.folder, on_progress) for download in dataset.missing_downloads(root)]


def _fetch(download: Download, folder: Path, on_progress: OnProgress) -> Path:
    import pooch  # type: ignore[import-untyped]

    pooch.get_logger().setLevel(logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    downloader = _ResumingDownloader(folder / f".{download.file}.part", on_progress)
    by_hand = f"or put {download.file} into {folder.resolve()} by hand"
    try:
        return Path(pooch.retrieve(download.url, download.checksum, download.file, folder, downloader=downloader))
    except (OSError, HTTPException) as error:
        raise DataError(
            f"could not download {download.url} ({error}). Try again to resume the download, {by_hand}"
        ) from error
    except ValueError as error:
        raise DataError(
            f"{download.url}: the downloaded file is not the published one ({error}). Try again, {by_hand}"
        ) from error


class _ResumingDownloader:
    """Downloader for pooch whose partial file is kept when the connection breaks."""

    def __init__(self, part: Path, on_progress: OnProgress) -> None:
        self._part = part
        self._on_progress = on_progress

    def __call__(self, url: str, output: str, pooch: object) -> None:
        """Download `url` into the file `output`. The signature is that of pooch."""
        try:
            self._resume(url)
        except HTTPError as error:
            if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            self._part.unlink()  # the partial file is longer than the published one
            self._resume(url)
        shutil.move(self._part, output)

    def _resume(self, url: str) -> None:
        done = self._part.stat().st_size if self._part.exists() else 0
        request = Request(url, headers={"Range": f"bytes={done}-"} if done else {})
        with urlopen(request, timeout=_TIMEOUT) as response:
            if response.status != HTTPStatus.PARTIAL_CONTENT:  # the server sends the file from its beginning
                done = 0
            total = done + int(response.headers.get("Content-Length", 0))
            with self._part.open("ab" if done else "wb") as file:
                while chunk := response.read(_CHUNK):
                    done += file.write(chunk)
                    if done > limits.DOWNLOAD_BYTES:
                        self._part.unlink()
                        raise ConnectionError(f"the file is larger than the limit of {limits.DOWNLOAD_BYTES:,} bytes")
                    self._on_progress(done, total)
        if done < total:
            raise ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")
