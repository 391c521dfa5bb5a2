"""Uploading: which way files come, and commits."""

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from starlette.responses import JSONResponse, Response

from ..storage.disk import BlobBatch
from ..storage.faults import Refused
from ..storage.names import check_path, is_commit
from ..store import Drop, Message, Operation, Put
from .admission import admission
from .call import Call, Denied, parse_object, text


def preupload(call: Call) -> Response:
    """Every file comes inside the commit: with hf-xet installed the answer "lfs" would mean Xet and nothing else."""
    commit = call.store.commit(call.repo(), call.params["rev"])
    files = call.json().get("files")
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise Refused("the field 'files' is a list of objects")
    answers = []
    for path in [check_path(text(file, "path")) for file in files]:
        answer: dict[str, Any] = {"path": path, "uploadMode": "regular", "shouldIgnore": False}
        # the client leaves out a file whose id is the same, so a second upload of the same files makes no commit
        if path in commit.files:
            answer["oid"] = commit.files[path].oid
        answers.append(answer)
    return JSONResponse({"files": answers})


def commit(call: Call) -> Response:
    """Apply one NDJSON commit to a branch, or to a new pull request with create_pr=1."""
    _require_room(call)
    ref = call.params["rev"]
    with call.store.blobs.batch() as batch:
        operations, header = _read_operations(call, batch)
    title = text(header, "summary", "") or "upload"
    message = Message(title, call.user, text(header, "description", ""))
    parent = _parent(header)
    admit = admission(call.store)
    answer: dict[str, Any] = {"success": True}
    if call.asked("create_pr") == "1":
        number, made = call.store.add_pull(call.repo_id, ref, operations, message, parent=parent, admit=admit)
        answer["pullRequestUrl"] = f"{call.endpoint}/kernels/{call.repo_id}/discussions/{number}"
    else:
        made = call.store.add_commit(call.repo_id, ref, operations, message, parent=parent, admit=admit)
    answer["commitOid"] = made.id
    answer["commitUrl"] = f"{call.endpoint}/kernels/{call.repo_id}/commit/{made.id}"
    return JSONResponse(answer)


def _require_room(call: Call) -> None:
    limit = call.policy.max_registry_bytes
    if limit and call.store.blobs.size() + call.size > limit:
        # 507 and not 413: a smaller commit would not help
        raise Denied(507, f"the registry takes at most {limit} bytes in all; somebody has to make room: registry gc")


def no_xet(call: Call) -> Response:
    """Xet is not spoken here; preupload never sends a client this way."""
    raise Denied(404, "this registry has no Xet storage")


def _read_operations(call: Call, batch: BlobBatch) -> tuple[list[Operation], dict[str, Any]]:
    operations: list[Operation] = []
    header: dict[str, Any] = {}
    for key, value in _lines(call):
        if key == "header":
            header = value
        elif key == "file":
            path = check_path(text(value, "path"))
            operations.append(Put(path, batch.put(_content(path, value))))
        elif key == "deletedFile":
            operations.append(Drop(text(value, "path")))
        elif key == "deletedFolder":
            operations.append(Drop(text(value, "path"), folder=True))
        elif key == "lfsFile":
            raise Refused("this registry takes files inside the commit, not by LFS", hint="ask preupload, it says so")
        else:
            raise Refused(f"unknown line {key!r} in the commit")
    return operations, header


def _lines(call: Call) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(call.body, 1):
        if not line.strip():
            continue
        record = parse_object(line)
        value = record.get("value")
        if not isinstance(value, dict):
            raise Refused(f"line {number} of the commit has no object under 'value'")
        yield text(record, "key"), value


def _content(path: str, value: dict[str, Any]) -> bytes:
    content = text(value, "content")
    encoding = text(value, "encoding", "base64")
    if encoding == "utf-8":
        return content.encode()
    if encoding != "base64":
        raise Refused(f"{path}: encoding is base64 or utf-8, got {encoding!r}")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(f"{path}: the content is not base64") from None


def _parent(header: dict[str, Any]) -> str | None:
    parent = header.get("parentCommit")
    if parent is None:
        return None
    if not isinstance(parent, str) or not is_commit(parent):
        raise Refused(f"parentCommit is a commit id of 40 hex digits, got {json.dumps(parent)[:60]}")
    return parent
