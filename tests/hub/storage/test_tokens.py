"""Tokens: found by their hash, never kept in clear."""

import pytest

from kernels_neuron.hub.storage.faults import AlreadyThere, Damaged, Refused
from kernels_neuron.hub.storage.tokens import Tokens, may
from kernels_neuron.hub.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_a_token_is_found_and_only_its_hash_is_on_disk(store):
    secret = store.tokens.add("ci", {"org": "write"}, "2026-01-01T00:00:00.000Z")
    found = Store(store.root).tokens.find(secret)
    assert (found.user, found.grants) == ("ci", {"org": "write"})
    kept = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    assert secret.encode() not in kept
    assert store.tokens.find(secret + "x") is None
    assert store.tokens.find("") is None


def test_a_revoked_token_is_unknown(store):
    secret = store.tokens.add("ci", {"*": "read"}, "now")
    assert store.tokens.revoke("ci")
    assert store.tokens.find(secret) is None
    assert not store.tokens.revoke("ci")


def test_a_passing_token_touches_no_file(store):
    secret = store.tokens.add("local", {"*": "write"}, "now", keep=False)
    assert store.tokens.find(secret).user == "local"
    assert Store(store.root).tokens.find(secret) is None


def test_one_user_has_one_token_with_rights_that_can_be_read(store):
    store.tokens.add("ci", {"*": "read"}, "now")
    with pytest.raises(AlreadyThere):
        store.tokens.add("ci", {"*": "write"}, "now")
    with pytest.raises(Refused, match="role is one of read, write, admin, got 'owner'"):
        store.tokens.add("other", {"org": "owner"}, "now")
    with pytest.raises(Refused, match="at least one right"):
        store.tokens.add("other", {}, "now")
    for scope in ("", "org/", "a/b/c", "or*", ".."):
        with pytest.raises(Refused, match="repo id"):
            store.tokens.add("other", {scope: "read"}, "now")
    with pytest.raises(Refused, match="user name"):
        store.tokens.add("a b", {"*": "read"}, "now")


@pytest.mark.parametrize("text", ["{", "[1]", '[{"user": "x", "grants": {"*": "owner"}, "created": "", "sha256": ""}]'])
def test_a_damaged_token_file_is_an_error_and_lets_nobody_in(store, text):
    (store.root / "tokens.json").write_text(text)
    with pytest.raises(Damaged, match=r"tokens\.json"):
        store.tokens.find("anything")


def test_tokens_without_a_file_live_in_memory():
    tokens = Tokens()
    assert tokens.find(tokens.add("x", {"*": "write"}, "now")).may("write", "any/repo")


@pytest.mark.parametrize(
    ("grants", "may_read", "may_write"),
    [
        ({"*": "write"}, ["org/a", "org/b", "lab/a"], ["org/a", "org/b", "lab/a"]),
        ({"org": "write"}, ["org/a", "org/b"], ["org/a", "org/b"]),
        ({"*": "read", "org/a": "write"}, ["org/a", "org/b", "lab/a"], ["org/a"]),
        ({"org": "admin", "org/a": "read"}, ["org/a", "org/b"], ["org/a", "org/b"]),
        ({"or": "write", "org/ab": "write", "orga": "write"}, [], []),
    ],
    ids=["all", "owner", "repo", "the-widest-counts", "no-prefixes"],
)
def test_a_right_holds_for_its_scope_and_nothing_else(grants, may_read, may_write):
    repos = ["org/a", "org/b", "lab/a"]
    assert [repo for repo in repos if may(grants, "read", repo)] == may_read
    assert [repo for repo in repos if may(grants, "write", repo)] == may_write
