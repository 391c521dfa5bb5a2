"""Repos: create, delete, rename, list, describe."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from ..storage.faults import AlreadyThere, Refused
from ..storage.records import Commit, Repo
from .call import Call, page, text


def create(call: Call) -> Response:
    """A new repo. One that exists answers 409 with its url, which is all that exist_ok=True needs."""
    body = call.json()
    repo_id = _named(call, body)
    call.require("write", repo_id)
    private = body.get("private") is True or text(body, "visibility", "public") == "private"
    answer = {"url": f"{call.endpoint}/kernels/{repo_id}", "name": repo_id, "id": repo_id}
    try:
        call.store.create(repo_id, author=call.user, private=private)
    except AlreadyThere as error:
        return JSONResponse({**answer, "error": str(error)}, 409, headers={"X-Error-Message": str(error)})
    return JSONResponse(answer)


def delete(call: Call) -> Response:
    """Remove a repo."""
    repo_id = _named(call, call.json())
    call.known(repo_id)
    call.require("admin", repo_id)
    call.store.delete(repo_id)
    return JSONResponse({})


def move(call: Call) -> Response:
    """Rename a repo. The old name is free at once; no redirect is kept."""
    body = call.json()
    _require_kernel(body)
    old, new = text(body, "fromRepo"), text(body, "toRepo")
    call.known(old)
    call.require("admin", old)
    call.require("write", new)
    call.store.move(old, new)
    return JSONResponse({"url": f"{call.endpoint}/kernels/{new}"})


def index(call: Call) -> Response:
    """The repos that the caller may see; `author` and `search` narrow them."""
    repos = [call.store.repo(repo_id) for repo_id in call.store.ids()]
    author, search = call.asked("author"), call.asked("search").lower()
    wanted = [
        repo
        for repo in repos
        if call.may_see(repo.id, repo.private) and author in ("", repo.owner) and search in repo.id.lower()
    ]
    downloads = call.store.downloads.all()
    return page(call, [_info(repo, call.store.commit(repo, "main"), downloads) for repo in wanted])


def info(call: Call) -> Response:
    """A repo at main."""
    repo = call.repo()
    return JSONResponse(_info(repo, call.store.commit(repo, "main"), call.store.downloads.all()))


def revision(call: Call) -> Response:
    """A repo at a revision."""
    repo = call.repo()
    return JSONResponse(_info(repo, call.store.commit(repo, call.params["rev"]), call.store.downloads.all()))


def _info(repo: Repo, commit: Commit, downloads: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    count = sum(number for (repo_id, _), number in downloads.items() if repo_id == repo.id)
    counts = {"gated": False, "disabled": False, "downloads": count, "likes": 0, "tags": []}
    return {
        "id": repo.id,
        "author": repo.owner,
        "sha": commit.id,
        "createdAt": repo.created,
        "lastModified": commit.date,
        "private": repo.private,
        **counts,
        "siblings": [{"rfilename": path} for path in commit.files],
    }


def _named(call: Call, body: dict[str, Any]) -> str:
    _require_kernel(body)
    return f"{text(body, 'organization', call.user)}/{text(body, 'name')}"


def _require_kernel(body: dict[str, Any]) -> None:
    kind = text(body, "type", "model")
    if kind != "kernel":
        raise Refused(f"this registry keeps repos of type kernel, not {kind!r}", hint="pass repo_type='kernel'")
