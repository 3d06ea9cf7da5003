"""Fetching published files: verified, whole at every moment, and going on where an earlier attempt stopped."""

from __future__ import annotations

import logging
import shutil
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet, Download, Progress, silent

_CHUNK = 1 << 20
_PATIENCE = 30.0  # seconds without any answer


def fetch(dataset: DataSet, place: Path, progress: Progress = silent) -> list[Path]:
    """Fetch what is not yet below `place`; gives what was fetched."""
    return [_fetch(download, place / dataset.folder, progress) for download in dataset.absent(place)]


def _fetch(download: Download, folder: Path, progress: Progress) -> Path:
    import pooch  # type: ignore[import-untyped]

    pooch.get_logger().setLevel(logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    resume = _Resume(folder / f".{download.file}.part", progress)
    by_hand = f"or put {download.file} into {folder.resolve()} by hand"
    try:
        return Path(pooch.retrieve(download.url, download.checksum, download.file, folder, downloader=resume))
    except (OSError, HTTPException) as error:
        raise DataError(
            f"could not fetch {download.url} ({error}). Try again, which goes on where it stopped, {by_hand}"
        ) from error
    except ValueError as error:
        raise DataError(
            f"{download.url}: what came is not what was published ({error}). Try again, {by_hand}"
        ) from error


class _Resume:
    """Downloads into a file that stays when the connection breaks."""

    def __init__(self, part: Path, progress: Progress) -> None:
        self._part = part
        self._progress = progress

    def __call__(self, url: str, output: str, pooch: object) -> None:
        """Fetch `url` into the file `output`; this is what pooch asks for."""
        try:
            self._continue(url)
        except HTTPError as error:
            if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            self._part.unlink()  # longer than what is published
            self._continue(url)
        shutil.move(self._part, output)

    def _continue(self, url: str) -> None:
        done = self._part.stat().st_size if self._part.exists() else 0
        request = Request(url, headers={"Range": f"bytes={done}-"} if done else {})
        with urlopen(request, timeout=_PATIENCE) as response:
            if response.status != HTTPStatus.PARTIAL_CONTENT:  # the server begins anew, and so must the file
                done = 0
            total = done + int(response.headers.get("Content-Length", 0))
            with self._part.open("ab" if done else "wb") as file:
                while chunk := response.read(_CHUNK):
                    done += file.write(chunk)
                    self._progress(done, total)
        if done < total:
            raise ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")
