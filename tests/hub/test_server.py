"""The wire: statuses, headers and bodies as hub clients read them, over a real socket, without a client library."""

import base64
import hashlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from kernels_neuron.hub.serving import RunningServer, run_server

CONTENT = b"0123456789"
ODD_PATH = "dir with space/ü #1 50%.txt"


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        return self.headers["X-Error-Code"]

    @property
    def message(self) -> str | None:
        return self.headers["X-Error-Message"]


class Wire:
    """Sends a request exactly as written."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.host = server.url.removeprefix("http://")
        self.tokens = {"write": server.token, "read": server.store.tokens.add("reader", {"*": "read"}, "now")}

    def __call__(self, method: str, path: str, body: Any = None, *, role: str | None = None, **headers: str) -> Answer:
        if role:
            headers["Authorization"] = f"Bearer {self.tokens[role]}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, timeout=30)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def commit(self, path: str, *lines: tuple[str, dict], header: dict | None = None, role: str = "write") -> Answer:
        rows = [("header", {"summary": "change", **(header or {})}), *lines]
        body = "\n".join(json.dumps({"key": key, "value": value}) for key, value in rows).encode()
        return self("POST", f"/api/kernels/{path}", body, role=role)


def file(path: str, content: bytes = CONTENT) -> tuple[str, dict]:
    return "file", {"path": path, "content": base64.b64encode(content).decode(), "encoding": "base64"}


@pytest.fixture(scope="module")
def wire(tmp_path_factory) -> Iterator[Wire]:
    """One server with org/relu (public) and org/secret (private), each with a few files on main."""
    with run_server(tmp_path_factory.mktemp("registry"), untrusted=frozenset({"shady"})) as server:
        wire = Wire(server)
        for name, visibility in (("relu", "public"), ("secret", "private")):
            body = {"name": name, "organization": "org", "type": "kernel", "visibility": visibility}
            assert wire("POST", "/api/repos/create", body, role="write").status == 200
        first = file(ODD_PATH), file("a/b/c.py", b"x = 1\n"), file("empty", b""), file("digits")
        assert wire.commit("org/relu/commit/main", *first).status == 200
        assert wire.commit("org/secret/commit/main", file("digits")).status == 200
        yield wire


def head(wire: Wire, repo_id: str = "org/relu") -> str:
    return wire.server.store.repo(repo_id).branches["main"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(("path", "content"), [("digits", CONTENT), ("empty", b""), (ODD_PATH, CONTENT)], ids=ascii)
def test_a_file_comes_with_the_headers_that_a_client_caches_by(wire, method, path, content):
    answer = wire(method, f"/kernels/org/relu/resolve/main/{quote(path)}")
    assert answer.status == 200
    assert answer.body == (content if method == "GET" else b"")
    assert answer.headers["Content-Length"] == str(len(content))
    assert answer.headers["X-Repo-Commit"] == head(wire)
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    assert answer.headers["ETag"] == f'"{git}"'
    assert answer.headers["Content-Disposition"].isascii()


@pytest.mark.parametrize(
    ("asked", "status", "content", "content_range"),
    [
        ("bytes=2-5", 206, b"2345", "bytes 2-5/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=0-99", 206, CONTENT, "bytes 0-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
    ],
)
def test_ranges(wire, asked, status, content, content_range):
    answer = wire("GET", "/kernels/org/relu/resolve/main/digits", Range=asked)
    assert (answer.status, answer.headers["Content-Range"]) == (status, content_range)
    if content is not None:
        assert answer.body == content
        assert answer.headers["X-Repo-Commit"] == head(wire)


@pytest.mark.parametrize("revision", ["main", "refs%2Fheads%2Fmain", "{head}"])
@pytest.mark.parametrize("prefix", ["/kernels/org/relu", "/org/relu"], ids=["kernel", "model"])
def test_a_file_is_found_by_every_form_of_revision(wire, prefix, revision):
    answer = wire("GET", f"{prefix}/resolve/{revision.format(head=head(wire))}/a/b/c.py")
    assert (answer.status, answer.body) == (200, b"x = 1\n")


def test_errors_carry_the_codes_that_clients_turn_into_exceptions(wire):
    missing_repo = "/api/kernels/org/nope/refs"
    assert (wire("GET", missing_repo).status, wire("GET", missing_repo).code) == (401, "RepoNotFound")
    assert (wire("GET", missing_repo, role="read").status) == 404
    assert wire("GET", missing_repo, role="read").code == "RepoNotFound"
    revision = wire("GET", "/api/kernels/org/relu/revision/nope")
    assert (revision.status, revision.code) == (404, "RevisionNotFound")
    entry = wire("HEAD", "/kernels/org/relu/resolve/main/nope")
    assert (entry.status, entry.code, entry.headers["X-Repo-Commit"]) == (404, "EntryNotFound", head(wire))
    folder = wire("GET", "/api/kernels/org/relu/tree/main/nope")
    assert (folder.status, folder.code, folder.headers["X-Repo-Commit"]) == (404, "EntryNotFound", head(wire))


def test_a_private_repo_is_hidden_from_the_anonymous_only(wire):
    for path in ("/kernels/org/secret/resolve/main/digits", "/api/kernels/org/secret", "/api/models/org/secret/refs"):
        assert (wire("GET", path).status, wire("GET", path).code) == (401, "RepoNotFound")
        assert wire("GET", path, role="read").status == 200
    assert [row["id"] for row in wire("GET", "/api/kernels").json] == ["org/relu"]
    assert [row["id"] for row in wire("GET", "/api/kernels?search=SEC", role="read").json] == ["org/secret"]


@pytest.mark.parametrize("header", ["Bearer nope", "Basic YTpi", "nope", "Bearer"])
def test_an_unknown_token_is_told_so_even_on_a_public_repo(wire, header):
    answer = wire("GET", "/api/kernels/org/relu", Authorization=header)
    assert (answer.status, answer.message, answer.code) == (401, "Invalid credentials in Authorization header", None)


@pytest.mark.parametrize("role", [None, "read"])
def test_writing_takes_a_writer(wire, role):
    calls = [
        ("POST", "/api/repos/create", {"name": "x", "type": "kernel"}),
        ("DELETE", "/api/repos/delete", {"name": "relu", "organization": "org", "type": "kernel"}),
        ("POST", "/api/repos/move", {"fromRepo": "org/relu", "toRepo": "org/x", "type": "kernel"}),
        ("POST", "/api/kernels/org/relu/branch/v9", {}),
        ("DELETE", "/api/kernels/org/relu/branch/v9", None),
        ("POST", "/api/kernels/org/relu/tag/main", {"tag": "t"}),
        ("POST", "/api/kernels/org/relu/preupload/main", {"files": []}),
        ("POST", "/api/kernels/org/relu/commit/main", None),
    ]
    for method, path, body in calls:
        answer = wire(method, path, body, role=role)
        assert answer.status == 403 and ("rights" if role else "HF_TOKEN") in (answer.message or ""), path
    assert wire.server.store.ids() == ["org/relu", "org/secret"]
    assert set(wire.server.store.repo("org/relu").branches) == {"main"}


def test_whoami_names_the_caller_and_what_the_token_may(wire):
    assert wire("GET", "/api/whoami-v2").status == 401
    me = wire("GET", "/api/whoami-v2", role="read").json
    assert (me["name"], me["auth"]["accessToken"]["role"]) == ("reader", "read")
    assert (me["grants"], me["orgs"]) == ({"*": "read"}, [])


def test_creating_what_exists_is_409_with_its_url(wire):
    body = {"name": "relu", "organization": "org", "type": "kernel"}
    answer = wire("POST", "/api/repos/create", body, role="write")
    assert (answer.status, answer.json["url"]) == (409, f"{wire.server.url}/kernels/org/relu")


@pytest.mark.parametrize("kind", ["model", "dataset", None])
def test_other_kinds_of_repo_are_refused_with_the_way_out(wire, kind):
    answer = wire("POST", "/api/repos/create", {"name": "x", "type": kind}, role="write")
    assert answer.status == 400 and "repo_type='kernel'" in answer.message


def test_trust_is_per_owner(wire):
    assert wire("GET", "/api/organizations/org/overview").json["trustedKernelPublisher"] is True
    assert wire("GET", "/api/organizations/shady/overview").json["trustedKernelPublisher"] is False


def test_a_tree_lists_folders_and_files_with_the_ids_git_gives_them(wire):
    rows = {row["path"]: row for row in wire("GET", "/api/kernels/org/relu/tree/main").json}
    assert {path: row["type"] for path, row in rows.items()} == {
        "a": "directory", "dir with space": "directory", "digits": "file", "empty": "file",
    }  # fmt: skip
    assert rows["empty"]["oid"] == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    # git mktree of "100644 blob <c.py>", then of that tree as b
    blob = hashlib.sha1(b"blob 6\0x = 1\n").digest()
    inner = hashlib.sha1(b"tree 32\0" + b"100644 c.py\0" + blob).digest()
    outer = hashlib.sha1(b"tree 28\0" + b"40000 b\0" + inner).hexdigest()
    assert rows["a"]["oid"] == outer
    deep = wire("GET", "/api/kernels/org/relu/tree/main/a%2Fb?recursive=true").json
    assert [row["path"] for row in deep] == ["a/b/c.py"]


def test_paths_info_leaves_out_what_is_missing(wire):
    body = f"paths=digits&paths=nope&paths=a%2Fb&paths={quote(ODD_PATH)}&expand=false".encode()
    answer = wire("POST", "/api/kernels/org/relu/paths-info/main", body)
    assert sorted(row["path"] for row in answer.json) == sorted(["digits", "a/b", ODD_PATH])


def test_lists_come_in_pages_that_lead_to_each_other(wire):
    path, seen = "/api/kernels/org/relu/tree/main?recursive=true&limit=2", []
    while path:
        answer = wire("GET", path)
        assert len(answer.json) <= 2
        seen += [row["path"] for row in answer.json]
        link = answer.headers["Link"]
        path = link.split(";")[0].strip("<>").removeprefix(wire.server.url) if link else None
    assert seen == sorted(["a", "a/b", "a/b/c.py", "dir with space", ODD_PATH, "digits", "empty"])


def test_preupload_answers_regular_and_the_id_of_what_is_there(wire):
    body = {"files": [{"path": "digits", "sample": "", "size": 10}, {"path": "new.bin", "sample": "", "size": 10**10}]}
    known, new = wire("POST", "/api/kernels/org/relu/preupload/main", body, role="write").json["files"]
    assert known["uploadMode"] == new["uploadMode"] == "regular"
    assert known["oid"] == hashlib.sha1(b"blob 10\0" + CONTENT).hexdigest()
    assert "oid" not in new


def test_a_commit_says_where_it_is_and_a_stale_parent_is_412(wire):
    parent = head(wire)
    made = wire.commit("org/relu/commit/main", file("twelve", b"12"), header={"parentCommit": parent})
    assert (made.status, made.json["commitOid"]) == (200, head(wire))
    assert made.json["commitUrl"] == f"{wire.server.url}/kernels/org/relu/commit/{head(wire)}"
    assert wire.commit("org/relu/commit/main", file("x"), header={"parentCommit": parent}).status == 412
    gone = wire.commit("org/relu/commit/main", ("deletedFile", {"path": "twelve"}))
    assert gone.status == 200
    again = wire.commit("org/relu/commit/main", ("deletedFile", {"path": "twelve"}))
    assert (again.status, again.code) == (404, "EntryNotFound")
    assert "A file with this name doesn't exist" in again.message


def test_history_is_newest_first(wire):
    made = wire.commit("org/relu/commit/main", file("h", b"1"), header={"summary": "one\u2028\r\nX-Evil: 1"})
    rows = wire("GET", "/api/kernels/org/relu/commits/main").json
    assert rows[0]["id"] == made.json["commitOid"]
    assert rows[0]["authors"] == [{"user": "local"}]
    assert rows[-1]["title"] == "initial commit"


@pytest.mark.parametrize(
    "path",
    [
        "../../../etc/x",
        "/etc/x",
        "a/../../x",
        "C:\\x",
        "a\\..\\x",
        "CON",
        "x.",
        ".git/config",
        "a\nb",
        "DIGITS",
        "digits/x",
        "\ud800",
    ],
    ids=ascii,
)
def test_dangerous_paths_are_refused_and_nothing_is_written(wire, path):
    before = head(wire)
    outside = sorted(wire.server.store.root.parent.iterdir())
    answer = wire.commit("org/relu/commit/main", file("fine"), file(path))
    assert answer.status == 400 and answer.message
    assert head(wire) == before
    assert sorted(wire.server.store.root.parent.iterdir()) == outside


@pytest.mark.parametrize(
    "path",
    [
        "/kernels/org/relu/resolve/main/../../../../repo.json",
        "/kernels/org/relu/resolve/main/..%2F..%2Frepo.json",
        "/kernels/org/relu/resolve/..%2Fcommits/digits",
        "/kernels/..%2Forg/relu/resolve/main/digits",
        "/kernels/org/%2e%2e/resolve/main/digits",
        "/api/kernels/org/relu/tree/main/..%2F..",
        "/kernels/org/relu/resolve/main/digits%00",
    ],
)
def test_no_path_leads_out_of_a_repo(wire, path):
    assert wire("GET", path, role="read").status == 404


BAD_BODIES = {
    "not_json": b"{",
    "a_list": b"[1]",
    "deep": b"[" * 100_000,
    "no_value": b'{"key":"file"}',
    "key_is_a_number": b'{"key":1,"value":{}}',
    "unknown_key": b'{"key":"zip","value":{}}',
    "lfs": b'{"key":"lfsFile","value":{"path":"x","oid":"1","size":1,"algo":"sha256"}}',
    "not_base64": b'{"key":"file","value":{"path":"x","content":"***","encoding":"base64"}}',
    "not_ascii_base64": '{"key":"file","value":{"path":"x","content":"ü","encoding":"base64"}}'.encode(),
    "odd_encoding": b'{"key":"file","value":{"path":"x","content":"x","encoding":"rot13"}}',
    "path_is_a_list": b'{"key":"file","value":{"path":[],"content":""}}',
    "odd_parent": b'{"key":"header","value":{"summary":"x","parentCommit":"main"}}',
    "odd_summary": b'{"key":"header","value":{"summary":{"a":1}}}',
    "surrogate_summary": b'{"key":"header","value":{"summary":"\\ud800"}}',
    "not_utf8": b'{"key":"header","value":{"summary":"\xff\xfe"}}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_commit_is_400_with_a_message(wire, body):
    before = head(wire)
    answer = wire("POST", "/api/kernels/org/relu/commit/main", body, role="write")
    assert answer.status == 400 and answer.message and answer.json["error"]
    assert head(wire) == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/repos/create", {"name": ["x"], "type": "kernel"}),
        ("POST", "/api/repos/create", {"name": "../x", "type": "kernel"}),
        ("POST", "/api/repos/create", {"name": "x", "organization": "api", "type": "kernel"}),
        ("POST", "/api/repos/create", {"name": "RELU", "organization": "org", "type": "kernel"}),
        ("POST", "/api/repos/move", {"type": "kernel", "fromRepo": "org/relu"}),
        ("POST", "/api/kernels/org/relu/branch/a..b", {}),
        ("POST", "/api/kernels/org/relu/branch/x", {"startingPoint": 1}),
        ("POST", "/api/kernels/org/relu/branch/%FF", {}),
        ("POST", "/api/kernels/org/relu/preupload/main", {"files": "x"}),
        ("POST", "/api/kernels/org/relu/preupload/main", {"files": [{"path": "../x"}]}),
        ("POST", "/api/kernels/org/relu/paths-info/main", b"paths=%FF"),
        ("POST", "/api/validate-yaml", {"content": 1}),
        ("POST", "/api/validate-yaml", {"content": "---\na: [\n---\n"}),
        ("POST", "/api/validate-yaml", {"content": "---\n- a\n---\n"}),
        ("GET", "/api/kernels/org/relu/tree/main?cursor=-1", None),
        ("GET", "/api/kernels/org/relu/tree/main?limit=" + "9" * 5000, None),
        ("GET", "/api/kernels?search=%FF", None),
    ],
)
def test_bad_requests_are_400_with_a_message(wire, method, path, body):
    answer = wire(method, path, body, role="write")
    assert answer.status == 400, answer.body
    assert answer.json.get("error") or answer.json["errors"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/"), ("GET", "/nope"), ("PUT", "/api/kernels/org/relu"), ("GET", "/api/models/org/relu/preupload/main"),
     ("GET", "/api/kernels/org/relu/xet-read-token/main"), ("OPTIONS", "/api/kernels"), ("GET", "//a//"),
     ("GET", "/kernels")],
)  # fmt: skip
def test_what_is_not_served_is_404(wire, method, path):
    assert wire(method, path).status == 404


def test_a_host_header_that_is_no_host_is_refused(wire):
    assert wire("GET", "/api/kernels/org/relu", Host="a/b?c").status == 400


def test_a_body_that_is_too_large_is_413(wire):
    answer = wire("POST", "/api/validate-yaml", b"", **{"Content-Length": str(2**40)})
    assert answer.status == 413


def test_health_answers(wire):
    assert wire("GET", "/health").json == {"status": "ok"}


def test_a_blob_lost_on_disk_is_an_error_that_no_client_retries(wire):
    wire.commit("org/relu/commit/main", file("doomed", b"doomed"))
    store = wire.server.store
    for damaged in (b"doo", b"doomeD"):
        store.blobs.path(hashlib.sha256(b"doomed").hexdigest()).write_bytes(damaged)
        answer = wire("GET", "/kernels/org/relu/resolve/main/doomed")
        assert answer.status == 410 and "registry verify" in answer.message


def test_a_pull_request_is_kept_and_leaves_the_branch_alone(wire):
    before = head(wire)
    answer = wire.commit("org/relu/commit/main?create_pr=1", file("pr", b"1"))
    number = answer.json["pullRequestUrl"].rpartition("/discussions/")[2]
    assert wire("GET", f"/kernels/org/relu/resolve/refs%2Fpr%2F{number}/pr").body == b"1"
    assert head(wire) == before
    refs = wire("GET", "/api/kernels/org/relu/refs?include_prs=1").json
    assert refs["converts"] == [] and refs["pullRequests"][-1]["ref"] == f"refs/pr/{number}"
