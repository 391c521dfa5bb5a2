"""What people report of uploads and downloads, with the real clients: odd paths, flaky lines, where requests go."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernels_neuron.errors import HubError
from kernels_neuron.hub.storage.damage import find_damage
from kernels_neuron.hub.upload import connect, read_release, upload

KIND = 'from huggingface_hub import HfApi, hf_hub_download\napi = HfApi()\nkind = {"repo_type": "kernel"}\n'


def test_a_folder_lands_in_the_same_place_however_the_root_is_spelled(server, client, kernel):
    code = f"""{KIND}
for name, where in {{"dot": ".", "slash": "./", "empty": "", "none": None}}.items():
    repo = f"org/{{name}}"
    api.create_repo(repo, **kind)
    for text in ("old", "new"):
        api.upload_file(path_or_fileobj=text.encode(), path_in_repo=f"{{text}}.txt", repo_id=repo, **kind)
    api.upload_folder(folder_path={str(kernel)!r}, repo_id=repo, path_in_repo=where, delete_patterns="*.txt", **kind)
    out[name] = sorted(api.list_repo_files(repo, **kind))
"""
    out = client(server, code, server.token)
    local = sorted(path.relative_to(kernel).as_posix() for path in kernel.rglob("*") if path.is_file())
    assert out == dict.fromkeys(("dot", "slash", "empty", "none"), local)


def test_operations_of_one_commit_keep_their_order_and_a_path_given_twice_is_the_last(server, client):
    code = f"""{KIND}
from huggingface_hub import CommitOperationAdd as Add, CommitOperationDelete as Delete
api.create_repo("org/k", **kind)
commit = lambda *operations: api.create_commit("org/k", list(operations), commit_message="m", **kind)
commit(Add("d/old", b"1"), Add("keep", b"2"))
commit(Delete("d/"), Add("d/new", b"3"), Add("twice", b"first"), Add("twice", b"second"))
out["files"] = sorted(api.list_repo_files("org/k", **kind))
out["twice"] = open(hf_hub_download("org/k", "twice", **kind)).read()
try:
    commit(Add("more", b"4"), Delete("nowhere"))
except Exception as error:
    out["missing"] = [type(error).__name__, str(error)]
out["after"] = sorted(api.list_repo_files("org/k", **kind))
"""
    out = client(server, code, server.token)
    assert out["files"] == out["after"] == ["d/new", "keep", "twice"] and out["twice"] == "second"
    assert "A file with this name doesn't exist" in out["missing"][1]


def test_a_download_goes_on_where_it_stopped(server, client):
    code = f"""{KIND}
import io
from huggingface_hub import hf_hub_url
from huggingface_hub.file_download import http_get
api.create_repo("org/k", **kind)
content = bytes(range(256)) * 64
api.upload_file(path_or_fileobj=content, path_in_repo="f", repo_id="org/k", **kind)
there = io.BytesIO(content[:5000])
there.seek(0, io.SEEK_END)
http_get(hf_hub_url("org/k", "f", **kind), there, resume_size=5000, expected_size=len(content))
out["same"] = there.getvalue() == content
"""
    assert client(server, code, server.token) == {"same": True}


HOSTS = """
import json, socket
asked = set()
lookup, connect = socket.getaddrinfo, socket.socket.connect
def getaddrinfo(host, *args, **kwargs):
    asked.add(str(host))
    return lookup(host, *args, **kwargs)
def connect_(self, address):
    asked.add(str(address[0]))
    return connect(self, address)
socket.getaddrinfo, socket.socket.connect = getaddrinfo, connect_
"""
USE = """
api.create_repo("org/big", exist_ok=True, **kind)
api.upload_file(path_or_fileobj=b"x" * 12 * 2**20, path_in_repo="big", repo_id="org/big", **kind)
out["size"] = len(open(hf_hub_download("org/big", "big", **kind, **where), "rb").read())
"""


@pytest.mark.slow
def test_no_request_leaves_the_host_of_the_environment(server, client, kernel):
    upload(connect(server.url, server.token), read_release(kernel), "org")
    load = """
from kernels import get_kernel
get_kernel("org/neuron-double", version=1).double(1)
api.move_repo("org/big", "org/moved", **kind)
out["hosts"] = sorted(asked)
"""
    out = client(server, f"{HOSTS}{KIND}where = {{}}\n{USE}{load}", server.token)
    assert out == {"size": 12 * 2**20, "hosts": ["127.0.0.1"]}


@contextmanager
def flaky(target: str, faults: list[str]) -> Iterator[str]:
    """A line to `target` on which each commit meets the next of `faults`.

    A number is a status; "cut" breaks the line before the server hears anything, "lost" after it has done it.
    """

    class Line(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = faults.pop(0) if faults and "/commit/" in self.path else ""
            if fault in ("cut", "lost"):
                if fault == "lost":
                    self.ask(body)
                self.close_connection = True
                self.connection.close()
                return
            if fault:
                self.send_response(int(fault))
                self.send_header("Retry-After", "5" if fault == "429" else "0")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.forward(body)

        def ask(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            through = http.client.HTTPConnection(target.removeprefix("http://"), timeout=60)
            through.request(self.command, self.path, body, {**self.headers, "Connection": "close"})
            response = through.getresponse()
            return response, response.read()

        def forward(self, body: bytes) -> None:
            response, data = self.ask(body)
            self.send_response(response.status)
            for key, value in response.getheaders():
                if key.lower() not in ("content-length", "connection", "date", "server"):
                    self.send_header(key, value)
            self.send_header("Content-Length", response.headers["Content-Length"] or str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_DELETE = answer

    with ThreadingHTTPServer(("127.0.0.1", 0), Line) as line:
        threading.Thread(target=line.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{line.server_port}"
        line.shutdown()


@pytest.fixture
def no_waiting(monkeypatch):
    """The seconds that publishing would have waited."""
    waited: list[float] = []
    monkeypatch.setattr("kernels_neuron.hub.upload.time.sleep", waited.append)
    return waited


@pytest.mark.parametrize(
    ("faults", "waits"),
    [(["500"], [1]), (["429"], [5]), (["cut"], [1]), (["lost"], [1]), (["cut", "503", "lost"], [1, 3, 9])],
    ids=str,
)
def test_an_upload_over_a_bad_line_is_repeated_until_it_is_whole(server, kernel, no_waiting, faults, waits):
    release = read_release(kernel)
    with flaky(server.url, list(faults)) as url:
        done = upload(connect(url, server.token), release, "org")
    repo = server.store.repo("org/neuron-double")
    history = [commit.title for commit in server.store.history(repo, "v1")]
    assert (no_waiting, len(history)) == (waits, 2), "one commit on top of the empty one"
    assert done.commit == repo.branches["v1"] and set(server.store.commit(repo, "v1").files) == set(release.files)
    assert find_damage(server.store) == []


def test_an_upload_over_a_line_that_stays_bad_leaves_nothing_half_made_and_a_later_one_completes_it(
    server, kernel, no_waiting
):
    release = read_release(kernel)
    with flaky(server.url, ["cut"] * 4) as url:
        api = connect(url, server.token)
        with pytest.raises(HubError, match="no Hub answers"):
            upload(api, release, "org")
        assert no_waiting == [1, 3, 9]
        assert server.store.commit(server.store.repo("org/neuron-double"), "v1").files == {}
        assert upload(api, release, "org").changed
    assert set(server.store.commit(server.store.repo("org/neuron-double"), "v1").files) == set(release.files)
