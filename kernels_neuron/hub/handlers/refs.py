"""Branches and tags."""

from starlette.responses import JSONResponse, Response

from .call import Call, text


def index(call: Call) -> Response:
    """All branches and tags, and on request the pull requests."""
    repo = call.repo()
    answer = {
        "branches": [_ref("heads", name, commit) for name, commit in repo.branches.items()],
        "tags": [_ref("tags", name, commit) for name, commit in repo.tags.items()],
        "converts": [],
    }
    if call.asked("include_prs") == "1":
        answer["pullRequests"] = [_ref("pr", number, pull.commit) for number, pull in repo.pulls.items()]
    return JSONResponse(answer)


def create_branch(call: Call) -> Response:
    """A branch at `startingPoint`, else at main."""
    call.store.create_branch(call.repo_id, call.params["rev"], text(call.json(), "startingPoint", "main"))
    return Response(status_code=201)


def delete_branch(call: Call) -> Response:
    """Remove a branch."""
    call.store.delete_branch(call.repo_id, call.params["rev"])
    return Response()


def create_tag(call: Call) -> Response:
    """A tag at the revision of the path."""
    call.store.create_tag(call.repo_id, text(call.json(), "tag"), call.params["rev"])
    return Response()


def delete_tag(call: Call) -> Response:
    """Remove a tag."""
    call.store.delete_tag(call.repo_id, call.params["rev"])
    return Response()


def _ref(kind: str, name: str, commit: str) -> dict[str, str]:
    return {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit}
