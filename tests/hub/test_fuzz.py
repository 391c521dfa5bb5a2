"""Whatever a stranger sends, the server answers below 500 and writes nowhere but into its own folder."""

import http.client
import json
import os
import random
import shutil
import socket
import string
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_neuron.hub.server import ROUTES
from kernels_neuron.hub.serving import run_server
from kernels_neuron.hub.storage.damage import find_damage
from kernels_neuron.hub.upload import connect, read_release, upload

pytestmark = pytest.mark.slow

REQUESTS = 5_000
SEEN: Counter[int] = Counter()
WORDS = st.sampled_from(
    [
        "api", "kernels", "models", "repos", "create", "delete", "move", "org", "neuron-double", "resolve", "tree",
        "refs", "main", "v1", "commit", "preupload", "branch", "tag", "paths-info", "revision", "commits", "whoami-v2",
        "metrics", "organizations", "overview", "validate-yaml", "build", "torch-cpu", "metadata.json", "refs%2Fpr%2F1",
        "health",
        "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "%0d%0aX:y", "a%5Cb", "%FF", "CON", "x.", "{owner}", "*", "",
    ]
)  # fmt: skip
SEGMENT = WORDS | st.text(string.printable.replace(" ", "").replace("\n", "").replace("\r", ""), max_size=12).map(
    lambda text: "".join(char if char.isalnum() or char in "-._~%" else f"%{ord(char):02X}" for char in text)
)
PATH = st.lists(SEGMENT, max_size=8).map(lambda parts: "/" + "/".join(parts))
QUERY = st.sampled_from(
    ["", "?recursive=true", "?limit=0", "?cursor=99999", "?create_pr=1", "?%FF", "?a[]=1&a", "?expand=x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["name", "organization", "type", "files", "path", "key", "value", "content", "encoding", "parentCommit", "tag"]
    ) | st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
LINES = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["header", "file", "deletedFile", "deletedFolder", "lfsFile", "x"]),
            "value": st.fixed_dictionaries(
                {},
                optional={
                    "path": st.sampled_from(
                        ["a", "../x", "/etc/passwd", "a/../../b", "C:\\x", "x.zip/../y", "a" * 2000, "\ud800"]
                    ),
                    "content": st.sampled_from(["", "aGk=", "%%%", "a", "=" * 9]),
                    "encoding": st.sampled_from(["base64", "utf-8", "rot13"]),
                    "parentCommit": st.sampled_from(["0" * 40, "main", 5]),
                    "summary": JSON,
                },
            ),
        }
    ),
    max_size=4,
).map(lambda rows: "\n".join(json.dumps(row) for row in rows).encode())
BODY = st.one_of(st.just(b""), st.binary(max_size=80), JSON.map(lambda value: json.dumps(value).encode()), LINES)
HEADERS = st.dictionaries(
    st.sampled_from(["Range", "If-Range", "Accept", "Host", "X-Forwarded-For", "Content-Type", "Expect"]),
    st.sampled_from(
        ["bytes=0-", "bytes=9-1", "bytes=-0", "bytes=a-b,c", "evil.example", "a b", "\t", "*/*", "x" * 3000]
    ),
    max_size=3,
)
# what the server's own table has, with each {name} filled in: half of the requests get somewhere
LIKELY = st.sampled_from(["org", "neuron-double", "main", "v1", "build/torch-cpu/metadata.json", "README.md"])


@st.composite
def routed(draw) -> tuple[str, str]:
    route = draw(st.sampled_from(ROUTES))
    known = {"owner": "org", "name": "neuron-double", "rev": "main"}
    parts = [
        draw(st.just(known.get(part[1:-1], "README.md")) | LIKELY | SEGMENT) if part.startswith("{") else part
        for part in route.pattern[1:].split("/")
    ]
    return route.method, "/" + "/".join(parts)


METHOD = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])


@pytest.fixture(scope="module")
def target(tmp_path_factory, make_kernel):
    root = tmp_path_factory.mktemp("outer")
    with run_server(root / "registry") as server:
        kernel = make_kernel(root / "build")
        upload(connect(server.url, server.token), read_release(kernel), "org")
        shutil.rmtree(root / "build")
        yield server, root


def ask(server, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def everything(folder) -> set[str]:
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if "registry/" not in str(path.relative_to(folder))
    }


@settings(
    max_examples=REQUESTS, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(asked=st.tuples(METHOD, PATH) | routed(), query=QUERY, body=BODY, headers=HEADERS, writer=st.booleans())
def test_five_thousand_requests_get_an_answer_below_500(target, asked, query, body, headers, writer):
    server, _ = target
    method, path = asked
    if writer:
        headers = {**headers, "Authorization": f"Bearer {server.token}"}
    status, said = ask(server, method, path + query, body, headers)
    SEEN[status] += 1
    assert status < 500, said
    assert b"Traceback" not in said and b"kernels_neuron/" not in said


def test_nothing_was_written_outside_the_root_and_the_registry_still_serves(target, build):
    server, root = target
    print(dict(SEEN))
    assert sum(SEEN.values()) >= REQUESTS and SEEN[200] > REQUESTS / 20, "enough of them got through to a handler"
    assert everything(root) <= {"registry"}
    assert not os.path.exists("/etc/passwd.part")
    assert find_damage(server.store) == []
    upload(connect(server.url, server.token), read_release(build()), "org")


POST = b"POST /api/validate-yaml HTTP/1.1\r\nHost: a\r\n"
RAW = {
    "no path": b"GET\r\n\r\n",
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    "a header injected through the path": b"GET /x\r\nX-Injected: 1\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "length and chunks": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a huge header": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "nul in the path": b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a path without a slash": b"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
    "an absolute address": b"GET http://evil.example/api/whoami-v2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "an endless body": POST + b"Transfer-Encoding: chunked\r\n\r\nFFFF\r\n",
    "a websocket": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: eA==\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
def test_broken_http_is_refused_and_the_next_request_is_answered(target, data):
    server, _ = target
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        said = b""
        while chunk := raw.recv(65536):
            said += chunk
    assert not said.startswith(b"HTTP/1.1 5") and b"X-Injected" not in said.partition(b"\r\n\r\n")[0]
    assert ask(server, "GET", "/health", b"", {})[0] == 200


def test_wrong_tokens_are_all_the_same_401(target):
    server, _ = target
    rng = random.Random(4)
    wrong = ["", "hf_", server.token[:-1], server.token + "x", server.token.upper(), "é", "x" * 5000]
    wrong += ["".join(rng.choices(string.ascii_letters, k=40)) for _ in range(20)]
    for token in wrong:
        header = f"Bearer {token}".encode("latin-1").decode("latin-1")
        status, said = ask(server, "GET", "/api/kernels/org/neuron-double", b"", {"Authorization": header})
        assert status == 401 and b"Invalid credentials" in said, token[:50]
