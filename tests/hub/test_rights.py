"""Tokens with roles in scopes, as the real client meets them: 401, 403 and 404 as the Hub gives them."""

import json
import urllib.request

import pytest
from huggingface_hub.errors import BadRequestError

from kernels_neuron.errors import HubError
from kernels_neuron.hub.upload import check_rights, connect, read_release, upload

TOKENS = {
    "org-reader": {"org": "read"},
    "org-writer": {"org": "write"},
    "one-repo": {"lab/secret": "write"},
    "new-repo": {"lab/new": "write"},
    "org-admin": {"org": "admin"},
    "everything": {"*": "admin"},
}

ASK = """
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
kind = {"repo_type": "kernel"}

def said(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
        return "ok"
    except HfHubHTTPError as error:
        return f"{type(error).__name__} {error.response.status_code}"

for who, token in TOKENS.items():
    api = HfApi(token=token or False)
    put = lambda repo: api.upload_file(path_or_fileobj=who.encode(), path_in_repo="x", repo_id=repo, **kind)
    out[who] = {
        "read public": said(api.list_repo_refs, "org/open", **kind),
        "read private": said(api.list_repo_refs, "org/secret", **kind),
        "read private of others": said(api.list_repo_refs, "lab/secret", **kind),
        "read missing": said(api.list_repo_refs, "org/none", **kind),
        "write public": said(put, "org/open"),
        "write private": said(put, "org/secret"),
        "write public of others": said(put, "lab/open"),
        "write private of others": said(put, "lab/secret"),
        "branch": said(api.create_branch, "org/open", branch=f"by-{who}", **kind),
        "write missing": said(put, "org/none"),
        "create": said(api.create_repo, f"org/by-{who}", **kind),
        "create in others": said(api.create_repo, "lab/new", **kind),
        "delete": said(api.delete_repo, f"org/of-{who}", **kind),
        "delete hidden": said(api.delete_repo, "lab/secret2", **kind),
        "rename into others": said(api.move_repo, "org/open", "lab/taken", **kind),
    }
"""

HIDDEN, FORBIDDEN, UNKNOWN = "RepositoryNotFoundError 404", "HfHubHTTPError 403", "HfHubHTTPError 401"
NOBODY = "RepositoryNotFoundError 401"  # what the anonymous get for private and missing alike
NOTHING_HERE = {
    "read public": "ok",
    **dict.fromkeys(["read private", "read private of others", "read missing"], HIDDEN),
    **dict.fromkeys(["write public", "write public of others", "branch", "create", "create in others"], FORBIDDEN),
    **dict.fromkeys(["write private", "write private of others", "write missing"], HIDDEN),
    "delete": FORBIDDEN,
    "delete hidden": FORBIDDEN,
    "rename into others": FORBIDDEN,
}
EXPECTED = {
    "anonymous": {
        key: {HIDDEN: NOBODY}.get(value, value) for key, value in NOTHING_HERE.items()
    },
    "wrong": dict.fromkeys(NOTHING_HERE, UNKNOWN),
    "org-reader": {**NOTHING_HERE, "read private": "ok", "write private": FORBIDDEN},
    "org-writer": {
        **NOTHING_HERE,
        **dict.fromkeys(["read private", "write public", "write private", "branch", "create"], "ok"),
    },
    "one-repo": {**NOTHING_HERE, **dict.fromkeys(["read private of others", "write private of others"], "ok")},
    "new-repo": {**NOTHING_HERE, "create in others": "ok"},
    "org-admin": {
        **NOTHING_HERE,
        **dict.fromkeys(["read private", "write public", "write private", "branch", "create", "delete"], "ok"),
        "delete hidden": HIDDEN,
    },
    "everything": {
        **dict.fromkeys(NOTHING_HERE, "ok"),
        "read missing": HIDDEN,
        "write missing": HIDDEN,
        "create in others": "HfHubHTTPError 409",  # new-repo made it before
    },
}  # fmt: skip


def test_a_token_may_what_its_scopes_say_and_learns_nothing_of_the_rest(server, client):
    store = server.store
    for repo_id in ("org/open", "lab/open", *(f"org/of-{who}" for who in EXPECTED)):
        store.create(repo_id, author="x")
    for repo_id in ("org/secret", "lab/secret", "lab/secret2"):
        store.create(repo_id, author="x", private=True)
    tokens = {"anonymous": "", "wrong": "hf_wrong"}
    tokens |= {who: store.tokens.add(who, grants, "now") for who, grants in TOKENS.items()}
    out = client(server, f"TOKENS = {tokens!r}\n{ASK}")
    for who, expected in EXPECTED.items():
        assert out[who] == expected, who
    assert {"lab/taken", "lab/new"} <= set(store.ids()) and not {"org/open", "lab/secret2"} & set(store.ids())


def test_lists_and_pages_hold_what_the_token_may_see(server):
    store = server.store
    for repo_id in ("org/secret", "lab/secret"):
        store.create(repo_id, author="x", private=True)
    reader = store.tokens.add("reader", {"org": "read"}, "now")
    headers = {"Authorization": f"Bearer {reader}"}
    assert [row["id"] for row in json.loads(fetch(server, "/api/kernels", headers))] == ["org/secret"]
    assert "org/secret" in (page := fetch(server, "/", headers)) and "lab/secret" not in page
    assert json.loads(fetch(server, "/api/kernels", {})) == []
    assert "secret" not in fetch(server, "/", {})
    me = json.loads(fetch(server, "/api/whoami-v2", headers))
    assert (me["grants"], me["auth"]["accessToken"]["role"]) == ({"org": "read"}, "fineGrained")
    assert [org["name"] for org in me["orgs"]] == ["org"], "an owner of hidden repos is not named"


def fetch(server, path: str, headers: dict[str, str]) -> str:
    with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers), timeout=30) as answer:
        return answer.read().decode()


def test_a_name_that_only_looks_like_a_hidden_one_is_refused_without_naming_it(server):
    server.store.create("lab/Hidden", author="x", private=True)
    api = connect(server.url, server.store.tokens.add("w", {"lab/hidden": "write"}, "now"))
    with pytest.raises(BadRequestError, match="differs from one that exists only by case") as error:
        api.create_repo("lab/hidden", repo_type="kernel")
    assert "Hidden" not in str(error.value)


def test_publishing_asks_for_the_rights_to_each_repo_before_anything_else(server, kernel):
    store = server.store
    one = connect(server.url, store.tokens.add("one", {"lab/neuron-double": "write", "org": "read"}, "now"))
    assert check_rights(one, "lab", ["neuron-double"]) == "lab"
    with pytest.raises(HubError, match="one may not publish lab/neuron-other at") as error:
        check_rights(one, "lab", ["neuron-double", "neuron-other"])
    assert error.value.hint == "the token writes lab/neuron-double"
    with pytest.raises(HubError, match="one may not publish one/neuron-double"):
        check_rights(one, None, ["neuron-double"])
    assert upload(one, read_release(kernel), "lab").repo_id == "lab/neuron-double"
    assert store.ids() == ["lab/neuron-double"]


def test_a_hub_that_is_not_ours_names_the_callers_organizations(server, monkeypatch):
    api = connect(server.url, server.token)
    me = {"name": "me", "orgs": [{"name": "team"}], "auth": {"accessToken": {"role": "write"}}}
    monkeypatch.setattr(api, "whoami", lambda: me)
    assert check_rights(api, None, ["neuron-double"]) == "me"
    assert check_rights(api, "team", ["neuron-double"]) == "team"
    with pytest.raises(HubError, match="me may not publish org/neuron-double") as error:
        check_rights(api, "org", ["neuron-double"])
    assert error.value.hint == "choose --owner from me, team"
