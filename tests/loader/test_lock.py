"""kernels.lock as upstream writes it, and the pins beside it."""

import json

import pytest
from kernels._rust import KernelLocks

from kernels_neuron.errors import ArtifactError, UsageError
from kernels_neuron.loader.lock import digest, locked, pins_file, read_lock, write_pins

COMMIT = "a" * 40


@pytest.fixture
def project(tmp_path):
    lock = [{"dependency": {"repo-id": "org/relu", "version": 1}, "lock": {"commit": COMMIT}}]
    (tmp_path / "kernels.lock").write_text(json.dumps(lock))
    return tmp_path


def test_a_lock_is_read_from_its_file_or_its_folder(project):
    for path in (project, project / "kernels.lock", str(project)):
        found = read_lock(path)["org/relu"]
        assert (found.commit, found.version, dict(found.pins)) == (COMMIT, 1, {})


def test_pins_lie_beside_the_lock_and_upstream_still_reads_it(project):
    file = project / "kernels.lock"
    before = file.read_bytes()
    write_pins(file, {"org/relu": (COMMIT, {"torch-cpu": digest(b"metadata")})})
    assert file.read_bytes() == before and len(KernelLocks.from_json(file.read_text())) == 1
    found = locked("org/relu", project)
    assert found.require_pinned("torch-cpu", b"metadata")
    assert not found.require_pinned("torch-neuron", b"other")
    with pytest.raises(ArtifactError, match=f"org/relu at {COMMIT} is not what .*kernels.pins.json pins: torch-cpu"):
        found.require_pinned("torch-cpu", b"metadatb")


def test_a_pin_counts_only_for_the_commit_it_was_made_for(project):
    write_pins(project / "kernels.lock", {"org/relu": ("b" * 40, {"torch-cpu": digest(b"metadata")})})
    assert not locked("org/relu", project).pins


def test_a_lock_of_another_name_has_its_own_pins(tmp_path):
    assert pins_file(tmp_path / "kernels.lock").name == "kernels.pins.json"
    assert pins_file(tmp_path / "ci.lock").name == "ci.pins.json"


def test_a_repo_that_is_not_locked_or_in_another_version_is_refused(project):
    with pytest.raises(UsageError, match="does not lock org/gelu, it locks org/relu") as error:
        locked("org/gelu", project)
    assert "kernels lock" in error.value.hint
    with pytest.raises(UsageError, match="locks version 1 of org/relu, got version=2"):
        locked("org/relu", project, 2)


@pytest.mark.parametrize("text", ["", "{}", "[{}]", '[{"dependency": {"repo-id": "x"}, "lock": {}}]', "\udcff"])
def test_what_is_no_lock_is_refused(tmp_path, text):
    (tmp_path / "kernels.lock").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"kernels.lock is no lock file"):
        read_lock(tmp_path)


def test_a_missing_lock_says_how_to_write_one(tmp_path):
    with pytest.raises(UsageError, match="there is no lock file") as error:
        read_lock(tmp_path)
    assert error.value.hint == f"write it with: kernels lock {tmp_path}"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2, "pins": {}}', '{"schema": 1, "pins": {"a": {}}}'])
def test_pins_that_cannot_be_read_do_not_mean_that_nothing_is_pinned(project, text):
    (project / "kernels.pins.json").write_text(text)
    with pytest.raises(UsageError, match=r"kernels.pins.json cannot be read"):
        read_lock(project)
