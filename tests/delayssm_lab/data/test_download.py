"""Downloads from a local server: complete, verified and resumed after an interruption."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.cifar10 import PublishedCifar10
from delayssm_lab.data.published.dataset import DataSet, Download
from delayssm_lab.data.published.download import fetch

CONTENT = np.random.default_rng(0).bytes(3_000_000)
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Server of CONTENT that stops after `limit` bytes, and honours range requests if `ranges`."""

    limit = len(CONTENT)
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append(wanted)
        begin = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if begin >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        self.wfile.write(CONTENT[begin : self.server.limit])

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def dataset(url: str, checksum: str | None = MD5) -> DataSet:
    return replace(PublishedCifar10(), downloads=(Download("images.bin", url, checksum),))


def test_a_file_arrives(server: Server, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    found = fetch(dataset(server.url), tmp_path, lambda *step: steps.append(step))
    assert found == [tmp_path / "cifar10" / "images.bin"]
    assert found[0].read_bytes() == CONTENT
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in found[0].parent.iterdir()] == ["images.bin"]
    fetch(dataset(server.url), tmp_path)
    assert server.requests == [None]  # a complete file is not downloaded again


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_transfer_goes_on(server: Server, ranges: bool, tmp_path: Path) -> None:
    server.limit, server.ranges = 1_500_000, ranges
    with pytest.raises(DataError, match=rf"could not download {server.url} .*1,500,000 of 3,000,000.*images.bin into"):
        fetch(dataset(server.url), tmp_path)
    assert not (tmp_path / "cifar10" / "images.bin").exists()
    server.limit = len(CONTENT)
    assert fetch(dataset(server.url), tmp_path)[0].read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1500000-"]


def test_a_part_that_is_too_long(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "cifar10" / ".images.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT + b"more")
    assert fetch(dataset(server.url), tmp_path)[0].read_bytes() == CONTENT
    assert server.requests == ["bytes=3000004-", None]


def test_a_file_that_never_ends(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DOWNLOAD_BYTES", 2_000_000)
    with pytest.raises(DataError, match=rf"{server.url} .*larger than the limit of 2,000,000 bytes"):
        fetch(dataset(server.url), tmp_path)
    assert list((tmp_path / "cifar10").iterdir()) == []


def test_a_wrong_checksum(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{server.url}: the downloaded file is not the published one .*images\.bin"):
        fetch(dataset(server.url, "md5:" + "0" * 32), tmp_path)
    assert list((tmp_path / "cifar10").iterdir()) == []


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
    with pytest.raises(DataError) as refused:
        fetch(dataset(url), tmp_path)
    message = str(refused.value)
    assert "\n" not in message
    assert f"could not download {url}" in message
    assert "refused" in message
    assert f"put images.bin into {tmp_path / 'cifar10'} by hand" in message
