"""Who is calling, and whom clients may trust."""

from starlette.responses import JSONResponse, Response

from ..card import front_matter_problem
from ..metrics import CONTENT_TYPE
from ..storage.tokens import EVERYWHERE
from .call import Call, Denied, text


def whoami(call: Call) -> Response:
    """The caller. `grants` is ours: what the token may where; a Hub has other words for its fine-grained tokens."""
    if call.caller is None:
        raise Denied(401, "Invalid username or password.")
    user, grants = call.caller.user, call.caller.grants
    owned = {scope: role for scope, role in grants.items() if scope not in (EVERYWHERE, user) and "/" not in scope}
    orgs = [
        {"type": "org", "id": name, "name": name, **_face(name), "roleInOrg": owned[name]} for name in sorted(owned)
    ]
    role = "fineGrained" if list(grants) != [EVERYWHERE] else "read" if grants[EVERYWHERE] == "read" else "write"
    access = {"displayName": user, "role": role, "createdAt": call.caller.created}
    answer = {"type": "user", "id": user, "name": user, **_face(user), "isPro": False, "orgs": orgs}
    return JSONResponse({**answer, "grants": grants, "auth": {"type": "access_token", "accessToken": access}})


def organization(call: Call) -> Response:
    """An owner, user or organization alike: clients ask here whether they may trust its kernels."""
    name = call.params["owner"]
    trusted = name not in call.policy.untrusted
    return JSONResponse({"name": name, **_face(name), "trustedKernelPublisher": trusted})


def user(call: Call) -> Response:
    """A user's public face."""
    name = call.params["owner"]
    return JSONResponse({"user": name, **_face(name), "orgs": []})


def agent_harnesses(call: Call) -> Response:
    """None: huggingface_hub asks once a day, and asks again in each process where this is missing."""
    return JSONResponse({"standardEnvVars": [], "harnesses": {}})


def health(call: Call) -> Response:
    """Answers while the server does."""
    return JSONResponse({"status": "ok"})


def metrics(call: Call) -> Response:
    """Counters for Prometheus. Of private repos nothing is told."""
    visible = {repo_id for repo_id in call.store.ids() if not call.store.repo(repo_id).private}
    downloads = {key: count for key, count in call.store.downloads.all().items() if key[0] in visible}
    page = call.policy.metrics.render(downloads, len(call.store.ids()))
    return Response(page, media_type=CONTENT_TYPE)


def validate_yaml(call: Call) -> Response:
    """Whether a card's front matter is a YAML mapping; asked before each upload of a README.md."""
    problem = front_matter_problem(text(call.json(), "content"))
    if problem:
        return JSONResponse({"errors": [{"message": problem}], "warnings": []}, 400)
    return JSONResponse({"errors": [], "warnings": []})


def _face(name: str) -> dict[str, str]:
    return {"fullname": name, "avatarUrl": ""}
