"""A small hub on this machine, which speaks as much of the Hugging Face Hub's protocol as models need."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories in memory: files by repository and path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}

    @property
    def address(self) -> str:
        """Address of the hub, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        self._file(with_content=False)

    def do_GET(self) -> None:
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/\w+)?", self.path):
            if found[1] not in self.server.files:
                return self._fail(404, "RepoNotFound")
            return self._answer({"id": found[1], "sha": COMMIT, "siblings": [], "private": False})
        self._file(with_content=True)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            content = json.loads(body)
            name = f"{content['organization']}/{content['name']}" if content.get("organization") else content["name"]
            self.server.files.setdefault(name, {})
            return self._answer({"url": f"{self.server.address}/{name}", "id": name})
        if self.path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            asked = json.loads(body)["files"]
            return self._answer(
                {
                    "files": [
                        {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                        for file in asked
                    ]
                }
            )
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/\w+", self.path.partition("?")[0])
        if not found:
            return self._fail(404, "EntryNotFound")
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                value = entry["value"]
                self.server.files[found[1]][value["path"]] = base64.b64decode(value["content"])
        return self._answer(
            {"success": True, "commitOid": COMMIT, "commitUrl": f"{self.server.address}/{found[1]}/commit/{COMMIT}"}
        )

    def _file(self, with_content: bool) -> None:
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/\w+/(.+)", self.path)
        if found is None or found[1] not in self.server.files:
            return self._fail(404, "RepoNotFound")
        content = self.server.files[found[1]].get(found[2])
        if content is None:
            return self._fail(404, "EntryNotFound")
        self.send_response(200)
        for name, value in {
            "Content-Length": len(content),
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
        }.items():
            self.send_header(name, str(value))
        self.end_headers()
        if with_content:
            self.wfile.write(content)

    def _answer(self, content: Any) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _fail(self, code: int, reason: str) -> None:
        self._send(code, b"", {"X-Error-Code": reason, "X-Error-Message": reason})

    def _send(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def running() -> Iterator[Hub]:
    """Yield a hub that answers until the end of the block."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
