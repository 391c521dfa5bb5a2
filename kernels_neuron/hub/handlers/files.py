"""Reading: trees, history, and the bytes of a file."""

import hashlib
import os
import re
from typing import Any

from starlette.responses import FileResponse, JSONResponse, Response

from ..storage.faults import Damaged, EntryMissing
from ..storage.records import Entry, list_tree
from .call import Call, page

# up to here a content is read and hashed before it is sent, which is faster too than handing out an open file
_WHOLE_BYTES = 2**18

# every client reads a variant's metadata.json before its other files, and once per cache
_VARIANT = re.compile(r"build/([^/]+)/metadata\.json")


def tree(call: Call) -> Response:
    """What lies in a folder at a revision."""
    commit = call.store.commit(call.repo(), call.params["rev"])
    folder = call.params.get("path", "").strip("/")
    entries = list_tree(commit.files, folder, recursive=call.asked("recursive").lower() in ("true", "1"))
    if entries is None:
        raise EntryMissing(f"{call.repo_id} has no folder {folder} at {call.params['rev']}", commit=commit.id)
    return page(call, [_row(entry) for entry in entries])


def paths_info(call: Call) -> Response:
    """The entries of the paths in the form; those that are missing are left out."""
    commit = call.store.commit(call.repo(), call.params["rev"])
    wanted = {path.strip("/") for path in call.form().get("paths", [])}
    entries = list_tree(commit.files, "", recursive=True) or []
    return JSONResponse([_row(entry) for entry in entries if entry.path in wanted])


def commits(call: Call) -> Response:
    """The history of a revision, newest first."""
    rows = []
    for commit in call.store.history(call.repo(), call.params["rev"]):
        about = {"id": commit.id, "title": commit.title, "message": commit.message, "date": commit.date}
        rows.append({**about, "authors": [{"user": commit.author}]})
    return page(call, rows)


def resolve(call: Call) -> Response:
    """The bytes of a file, whole or the ranges asked for; never a redirect, which loses X-Repo-Commit in the client."""
    commit = call.store.commit(call.repo(), call.params["rev"])
    path = call.params["path"]
    blob = commit.files.get(path)
    if blob is None:
        raise EntryMissing(f"{call.repo_id} has no file {path} at {call.params['rev']}", commit=commit.id)
    place = call.store.blobs.path(blob.sha256)
    try:
        stat = os.stat(place)
    except FileNotFoundError:
        stat = None
    if stat is None or stat.st_size != blob.size:
        raise _damaged(call.repo_id, path)
    variant = _VARIANT.fullmatch(path)
    if variant and not call.head:
        call.store.downloads.add(call.repo_id, variant[1])
    headers = {"ETag": f'"{blob.oid}"', "X-Repo-Commit": commit.id, "X-Content-Type-Options": "nosniff"}
    name = path.rpartition("/")[2]
    answer = FileResponse(
        place, headers=headers, media_type="application/octet-stream", filename=name, stat_result=stat
    )
    if call.head or call.ranged or blob.size > _WHOLE_BYTES:
        return answer
    data = place.read_bytes()
    if hashlib.sha256(data).hexdigest() != blob.sha256:
        raise _damaged(call.repo_id, path)
    return Response(data, headers=dict(answer.headers))


def _damaged(repo_id: str, path: str) -> Damaged:
    return Damaged(
        f"{path} of {repo_id} is damaged on the registry's disk",
        hint="run kernels-neuron registry verify, then publish the kernel again",
    )


def _row(entry: Entry) -> dict[str, Any]:
    if entry.blob is None:
        return {"type": "directory", "oid": entry.oid, "size": 0, "path": entry.path}
    return {"type": "file", "oid": entry.oid, "size": entry.blob.size, "path": entry.path}
