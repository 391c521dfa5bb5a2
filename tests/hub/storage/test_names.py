"""Names: what is dangerous on some machine is refused, what is only unusual passes."""

import pytest

from kernels_neuron.hub.storage.faults import Refused
from kernels_neuron.hub.storage.names import check_path, check_ref, check_repo_id, check_tree

DANGEROUS = [
    "", "/abs", "../x", "a/../b", "a/./b", "./a", ".", "..", "a//b", "a/", "C:\\x", "a\\b", "c:x", "a\nb", "a\0b", "x.",
    "x ", "a./b", "CON", "nul.txt", "a/com1", ".git", ".git/config", "a/.GIT/x", "x" * 256, "a/" * 600 + "b", "\ud800",
]  # fmt: skip
UNUSUAL = [
    "a b",
    "ü/é.py",
    "50%",
    "#1",
    "a+b",
    "日本/語.txt",
    ".gitignore",
    ".hidden",
    "a..b",
    "...x",
    "console.py",
    "a?b",
    "@",
]


@pytest.mark.parametrize("path", DANGEROUS, ids=ascii)
def test_dangerous_paths_are_refused(path):
    with pytest.raises(Refused):
        check_path(path)


@pytest.mark.parametrize("path", UNUSUAL, ids=ascii)
def test_unusual_paths_pass_unchanged(path):
    assert check_path(path) == path


@pytest.mark.parametrize(
    "paths",
    [["a", "A"], ["x/a", "X/b"], ["\u00e9", "e\u0301"], ["a", "a/b"], ["straße", "STRASSE"]],
    ids=["case", "folder_case", "unicode_form", "file_and_folder", "sharp_s"],
)
def test_paths_that_collide_are_refused(paths):
    with pytest.raises(Refused):
        check_tree(paths)


def test_a_tree_of_different_names_passes():
    check_tree(["a", "a-b", "b/a", "b/b/a", "c.py", "C2.py"])


@pytest.mark.parametrize("name", ["v1", "main", "feat/x", "release-1.0", "ünïcode", "a@b"], ids=ascii)
def test_ref_names_that_git_allows_pass(name):
    assert check_ref(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a..b", "/a", "a/", "a//b", "-a", "a.", ".a", "a/.b", "x.lock", "a~1", "a^", "a:b", "a*", "a\\b",
     "a@{1}", "@", "HEAD", "refs/heads/x", "0" * 40, "a\x01", "x" * 201, "\udcff"],
    ids=ascii,
)  # fmt: skip
def test_ref_names_that_would_be_mistaken_are_refused(name):
    with pytest.raises(Refused):
        check_ref(name)


@pytest.mark.parametrize("repo_id", ["org/relu", "Org-1/neuron-vit.attn_2", "a/b"])
def test_repo_ids_of_a_hub_pass(repo_id):
    assert "/".join(check_repo_id(repo_id)) == repo_id


@pytest.mark.parametrize(
    "repo_id",
    ["relu", "a/b/c", "/b", "a/", "../x", "a/..", "a/b--c", "a/b..c", "api/x", "Kernels/x", "a/x.git", "con/x",
     "a/ b", "a/ü", "-a/b", "a/b.",
     "a/" + "x" * 97, "a/b\n"],
    ids=ascii,
)  # fmt: skip
def test_repo_ids_that_no_hub_takes_are_refused(repo_id):
    with pytest.raises(Refused):
        check_repo_id(repo_id)
