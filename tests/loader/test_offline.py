"""Loading from a cache: without a network, by lock file, after tampering; each load in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_neuron.artifact import Metadata, digest_files
from kernels_neuron.hub.serving import run_server

pytestmark = pytest.mark.slow

NAME = "org/neuron-count"
INIT = "from .count import *\n\n__all__ = ['bump', 'answer']\n"
COUNT = """SEEN = []
ANSWER = {answer}


def bump():
    SEEN.append(1)
    return len(SEEN)


def answer():
    return ANSWER
"""

RUNNER = """
import json, logging, sys, warnings
logging.disable(); warnings.simplefilter("ignore")
out = {}

def said(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}; {getattr(error, 'hint', None)}"
"""


def build(root: Path, answer: int, version: int = 1, name: str = "neuron-count") -> Path:
    """A built repo with both variants, whose kernel answers `answer` and counts its own calls."""
    for backend in ("neuron", "cpu"):
        folder = root / "build" / f"torch-{backend}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(INIT)
        (folder / "count.py").write_text(COUNT.format(answer=answer))
        unique = f"_{name.replace('-', '_')}_{backend}_v{version}a{answer}"
        depends = ("nki",) if backend == "neuron" else ()
        metadata = Metadata(name, unique, version, "apache-2.0", depends, backend, digest_files(folder))
        (folder / "metadata.json").write_text(metadata.to_json())
    (root / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    return root


def publish(server, folder: Path, repo: str = NAME, branch: str = "v1") -> str:
    from huggingface_hub import HfApi

    api = HfApi(server.url, token=server.token)
    api.create_repo(repo, repo_type="kernel", exist_ok=True)
    api.create_branch(repo, branch=branch, repo_type="kernel", exist_ok=True)
    return api.upload_folder(repo_id=repo, folder_path=folder, repo_type="kernel", revision=branch).oid


def environment(home: Path, url: str, **more: str) -> dict[str, str]:
    left_out = ("HF_", "KERNELS_", "LOCAL_KERNELS", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | more


def run(home: Path, url: str, code: str, *, through: tuple[str, ...] = (), **more: str) -> dict:
    script = f"{RUNNER}\n{code}\nprint('\\n' + json.dumps(out))\n"
    command = [*through, sys.executable, "-c", script]
    done = subprocess.run(command, env=environment(home, url, **more), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def prefetch(home: Path, url: str, *argv: str) -> subprocess.CompletedProcess:
    code = "import sys; from kernels_neuron.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "prefetch", *argv]
    return subprocess.run(command, env=environment(home, url), capture_output=True, text=True, check=False)


def write_lock(project: Path, commit: str) -> Path:
    project.mkdir(exist_ok=True)
    lock = [{"dependency": {"repo-id": NAME, "version": 1}, "lock": {"commit": commit}}]
    (project / "kernels.lock").write_text(json.dumps(lock))
    return project / "kernels.lock"


LOAD = "from kernels_neuron.loader import get_kernel\n"
NO_NETWORK = """
import socket
calls = []
def refuse(self, address):
    calls.append(str(address))
    raise OSError("no network in this test")
socket.socket.connect = refuse
"""


def test_what_was_prefetched_loads_with_the_server_gone_here_and_in_kernels(tmp_path):
    home, project = tmp_path / "home", tmp_path / "project"
    with run_server(tmp_path / "registry") as server:
        commit = publish(server, build(tmp_path / "k", 1))
        publish(server, build(tmp_path / "k2", 2, version=2), branch="v2")
        lock = write_lock(project, commit)
        done = prefetch(home, server.url, f"{NAME}@v1", NAME, "--lock", str(lock), "--json")
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        assert [row["revision"] for row in rows] == ["v1", "v2", commit]
        assert [row["pinned"] for row in rows] == [False, False, True]
        assert set(json.loads((project / "kernels.pins.json").read_text())["pins"][NAME]["variants"]) == {
            "torch-cpu", "torch-neuron",
        }  # fmt: skip
    code = f"""{NO_NETWORK}{LOAD}
import kernels
from pathlib import Path
name, lock = {NAME!r}, Path({str(lock)!r})
which = [dict(version=1), dict(revision="v1"), dict(revision={commit!r}), dict(lock=lock), dict(lock=lock.parent),
         dict(version=2)]
out["ours"] = [said(lambda: get_kernel(name, **one).answer()) for one in which]
out["theirs"] = [said(lambda: kernels.get_kernel(name, **one).answer()) for one in (which[0], which[1], which[2])]
out["locked"] = said(lambda: kernels.get_locked_kernel(name, lockfile=lock).answer())
out["load"] = said(lambda: kernels.load_kernel(name, lockfile=lock).answer())
out["has"] = said(kernels.has_kernel, name, version=1)
out["cold"] = said(get_kernel, "org/other", version=1)
out["missing"] = said(get_kernel, name, version=7), said(get_kernel, name, revision="v9")
out["calls"] = calls
"""
    out = run(home, server.url, code, HF_HUB_OFFLINE="1")
    assert out["ours"] == [1, 1, 1, 1, 1, 2]
    assert out["theirs"] == [1, 1, 1]
    assert (out["locked"], out["load"], out["has"]) == (1, 1, True)
    assert "org/other has no version 1, the local cache has none; run kernels-neuron prefetch" in out["cold"]
    assert "no version 7, the local cache has 1, 2" in out["missing"][0]
    assert "is not in the cache and HF_HUB_OFFLINE is set; run kernels-neuron prefetch" in out["missing"][1]
    assert out["calls"] == []


def test_a_lock_is_honoured_after_the_branch_moved_and_without_pins_that_is_said(tmp_path):
    with run_server(tmp_path / "registry") as server:
        first = publish(server, build(tmp_path / "k", 1))
        publish(server, build(tmp_path / "k", 2))
        lock = write_lock(tmp_path / "project", first)
        code = f"""{LOAD}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    out["locked"] = get_kernel({NAME!r}, lock={str(lock)!r}).answer()
out["warned"] = [str(one.message) for one in caught if one.category.__name__ == "LockWarning"]
out["branch"] = get_kernel({NAME!r}, version=1).answer()
out["version"] = said(get_kernel, {NAME!r}, lock={str(lock)!r}, version=2)
"""
        out = run(tmp_path / "home", server.url, code)
        assert (out["locked"], out["branch"]) == (1, 2)
        assert len(out["warned"]) == 1 and "pins no digest" in out["warned"][0] and "--lock" in out["warned"][0]
        assert "locks version 1" in out["version"]


def test_a_version_is_the_commit_its_ref_names_whatever_else_the_cache_holds(tmp_path):
    home = tmp_path / "home"
    with run_server(tmp_path / "registry") as server:
        commits = []
        for answer in (1, 2, 3):
            commits.append(publish(server, build(tmp_path / f"k{answer}", answer)))
            assert prefetch(home, server.url, f"{NAME}@v1").returncode == 0
        assert prefetch(home, server.url, f"{NAME}@{commits[0]}").returncode == 0  # an older one, asked for last
    (cache,) = (home / "hub").glob("kernels--*")
    for age, commit in enumerate((commits[1], commits[2], commits[0])):
        os.utime(cache / "snapshots" / commit, (1e9 - age, 1e9 - age))
    code = f"""{LOAD}
which = [dict(version=1), dict(revision="v1"), *(dict(revision=commit) for commit in {commits!r})]
out["answers"] = [said(lambda: get_kernel({NAME!r}, **one).answer()) for one in which]
"""
    assert run(home, server.url, code, HF_HUB_OFFLINE="1") == {"answers": [3, 3, 1, 2, 3]}
    (cache / "refs" / "v1").write_text(commits[1])
    assert run(home, server.url, code, HF_HUB_OFFLINE="1") == {"answers": [2, 2, 1, 2, 3]}


def test_other_bytes_under_a_locked_commit_and_a_commit_that_is_gone_are_refused(tmp_path, monkeypatch):
    # ours would notice that its contents were swapped; this one is somebody else's
    monkeypatch.setattr("kernels_neuron.hub.handlers.files._WHOLE_BYTES", -1)
    with run_server(tmp_path / "registry") as server:
        commit = publish(server, build(tmp_path / "k", 1))
        lock = write_lock(tmp_path / "project", commit)
        assert prefetch(tmp_path / "home", server.url, "--lock", str(lock)).returncode == 0
        # the server now serves another artifact, whole in itself, under the same commit
        store = server.store
        evil = build(tmp_path / "evil", 6)
        for path, blob in store.commit(store.repo(NAME), commit).files.items():
            data = (evil / path).read_bytes().replace(b"_v1a6", b"_v1a1")
            assert len(data) == blob.size
            store.blobs.path(blob.sha256).write_bytes(data)
        code = f"{LOAD}out['said'] = said(get_kernel, {NAME!r}, lock={str(lock)!r})"
        said = run(tmp_path / "fresh", server.url, code)["said"]
        assert "kernels.pins.json pins: torch-neuron has the digest" in said
        done = prefetch(tmp_path / "fresh2", server.url, "--lock", str(lock), "--json")
        assert done.returncode == 1 and "kernels.pins.json pins" in json.loads(done.stdout)["error"]

        store.delete(NAME)
        publish(server, build(tmp_path / "k", 3))
        said = run(tmp_path / "fresh3", server.url, code)["said"]
        assert f"the commit {commit} of {NAME}" in said and "is gone from the server; lock what is there now" in said


def test_two_versions_and_two_repos_of_one_name_live_side_by_side(tmp_path):
    with run_server(tmp_path / "registry") as server:
        publish(server, build(tmp_path / "a", 1))
        publish(server, build(tmp_path / "b", 2, version=2), branch="v2")
        publish(server, build(tmp_path / "c", 3), repo="lab/neuron-count")
        publish(server, build(tmp_path / "d", 4, name="json"), repo="org/json")
        code = f"""{LOAD}
import kernels
one, two = (get_kernel({NAME!r}, version=version) for version in (1, 2))
cpu = kernels.get_kernel({NAME!r}, version=1)
lab, other = get_kernel("lab/neuron-count", version=1), get_kernel("org/json", version=1)
every = [one, two, lab, other, cpu]
out["answers"] = [kernel.answer() for kernel in every]
out["counts"] = [[kernel.bump() for kernel in every] for _ in range(2)]
out["names"] = len({{kernel.__name__ for kernel in every}})
out["json"] = json.loads("[1]")
"""
        out = run(tmp_path / "home", server.url, code)
    assert out["answers"] == [1, 2, 3, 4, 1]
    assert out["counts"] == [[1] * 5, [2] * 5]
    assert out["names"] == 5 and out["json"] == [1]


def test_no_bytecode_is_read_or_written_and_every_change_is_refused_before_anything_runs(tmp_path):
    home, ran = tmp_path / "home", tmp_path / "ran"
    plant = f"open({str(ran)!r}, 'w').close()\n"
    with run_server(tmp_path / "registry") as server:
        publish(server, build(tmp_path / "k", 1))
        assert prefetch(home, server.url, f"{NAME}@v1").returncode == 0
        load = f"{LOAD}out['said'] = said(lambda: get_kernel({NAME!r}, version=1).answer())"
        assert run(home, server.url, load, HF_HUB_OFFLINE="1") == {"said": 1}
        snapshot = next((home / "hub").glob("kernels--*/snapshots/*/build/torch-neuron"))
        assert not list(home.rglob("*.pyc")) and not list(home.rglob("__pycache__"))

        def with_bytecode(source: Path, cache: Path) -> None:
            """What Python itself would take for the compiled source: its header has the source's time and size."""
            evil = tmp_path / "evil.py"
            stat = source.stat()
            evil.write_text(plant)
            script = (
                "import importlib._bootstrap_external as b, sys, pathlib;"
                "code = compile(pathlib.Path(sys.argv[1]).read_text(), 'evil', 'exec');"
                "out = pathlib.Path(sys.argv[2]); out.parent.mkdir(exist_ok=True);"
                "out.write_bytes(b._code_to_timestamp_pyc(code, int(sys.argv[3]), int(sys.argv[4])))"
            )
            argv = [sys.executable, "-c", script, str(evil), str(cache), str(int(stat.st_mtime)), str(stat.st_size)]
            subprocess.run(argv, check=True)

        tag = sys.implementation.cache_tag
        for name in ("__init__", "count"):
            with_bytecode(snapshot / f"{name}.py", snapshot / "__pycache__" / f"{name}.{tag}.pyc")
        with_bytecode(snapshot / "count.py", snapshot / "extra.pyc")
        assert run(home, server.url, load, HF_HUB_OFFLINE="1") == {"said": 1}
        assert not ran.exists()

        code, init = (snapshot / "count.py").resolve(), (snapshot / "__init__.py").resolve()
        originals = {file: file.read_bytes() for file in (code, init)}
        damages = {
            "count.py: changed": lambda: code.write_bytes(originals[code] + b"\n"),
            "one byte": lambda: code.write_bytes(originals[code].replace(b"ANSWER = 1", b"ANSWER = 2")),
            "extra.py: not listed": lambda: (snapshot / "extra.py").write_text(plant),
            "__init__.py: changed": lambda: (code.write_bytes(originals[init]), init.write_bytes(originals[code])),
            "count.py: missing": lambda: (snapshot / "count.py").unlink(),
        }
        planted = {file: (plant.encode() + data) for file, data in originals.items()}
        for expected, damage in damages.items():
            damage()
            if expected == "count.py: changed":
                init.write_bytes(planted[init])
            said = str(run(home, server.url, load, HF_HUB_OFFLINE="1")["said"])
            # that a file of the snapshot is not there huggingface_hub itself finds, before we look
            assert ("HubError" if "missing" in expected else "ArtifactError") in said, expected
            assert expected in ("one byte", "count.py: missing") or expected in said
            assert not ran.exists(), expected
            for file, data in originals.items():
                file.write_bytes(data)
            (snapshot / "extra.py").unlink(missing_ok=True)
        # what is damaged in the cache is repaired by another prefetch
        code.write_bytes(b"raise SystemExit")
        done = prefetch(home, server.url, f"{NAME}@v1")
        assert done.returncode == 0 and "the cache is damaged" in done.stderr
        assert run(home, server.url, load, HF_HUB_OFFLINE="1") == {"said": 1}


def test_a_cache_without_links_and_a_cache_that_may_only_be_read_both_load(tmp_path):
    home = tmp_path / "home"
    with run_server(tmp_path / "registry") as server:
        publish(server, build(tmp_path / "k", 1))
        publish(server, build(tmp_path / "k2", 2, version=2), branch="v2")
        no_links = f"""
import os
def refuse(*args, **kwargs):
    raise OSError("no links here")
os.symlink = refuse
{LOAD}
out["answers"] = [get_kernel({NAME!r}, version=version).answer() for version in (1, 1, 2)]
"""
        assert run(tmp_path / "plain", server.url, no_links) == {"answers": [1, 1, 2]}
        assert not [path for path in (tmp_path / "plain").rglob("count.py") if path.is_symlink()]
        assert prefetch(home, server.url, NAME, f"{NAME}@v1").returncode == 0
    load = f"{LOAD}out['answers'] = [said(lambda: get_kernel({NAME!r}, version=v).answer()) for v in (1, 2)]"
    setpriv = shutil.which("setpriv")
    if os.geteuid() == 0 and setpriv is None:
        pytest.skip("root writes everywhere, and there is no setpriv here to take that right away")
    as_others = (setpriv, "--bounding-set=-dac_override,-dac_read_search") if setpriv and os.geteuid() == 0 else ()
    folders = [home, *(path for path in home.rglob("*") if path.is_dir() and not path.is_symlink())]
    before = sorted(home.rglob("*"))
    for folder in folders:
        folder.chmod(0o555)
    try:
        out = run(home, server.url, load, through=as_others, HF_HUB_OFFLINE="1")
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert out == {"answers": [1, 2]}
    assert sorted(home.rglob("*")) == before


def test_signatures_are_required_where_asked_for(tmp_path):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from kernels_neuron.hub.upload import connect, read_release, signed, upload
    from kernels_neuron.signing import public_text

    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    (tmp_path / "trusted").write_text(f"{public_text(key)} org/*\n")
    (tmp_path / "others").write_text(f"{public_text(other)} *\n")
    with run_server(tmp_path / "registry") as server:
        api = connect(server.url, server.token)
        release = read_release(build(tmp_path / "neuron-count", 1))
        upload(api, signed(release, key), "org")
        upload(api, signed(release, other), "lab")
        upload(api, release, "plain")
        wrong = read_release(build(tmp_path / "neuron-other", 2, name="neuron-other"))
        upload(api, signed(wrong, key), "org")
        api.move_repo("org/neuron-other", "org/neuron-renamed", repo_type="kernel")
        code = f"""{LOAD}
from pathlib import Path
trusted, others = {str(tmp_path / "trusted")!r}, Path({str(tmp_path / "others")!r})
ask = lambda repo, file: said(lambda: get_kernel(repo, version=1, require_signature=file).answer())
out["good"] = [ask("org/neuron-count", trusted), ask("lab/neuron-count", others), ask("org/neuron-count", True)]
out["bad"] = [ask("org/neuron-count", others), ask("lab/neuron-count", trusted), ask("plain/neuron-count", others),
              ask("org/neuron-renamed", trusted)]
"""
        out = run(tmp_path / "home", server.url, code, KERNELS_NEURON_TRUSTED_KEYS=str(tmp_path / "trusted"))
    assert out["good"] == [1, 1, 1]
    key_said, scope, unsigned, renamed = out["bad"]
    assert "not trusted for this repo" in key_said
    assert "no trusted key may sign for lab/neuron-count" in scope
    assert (
        "plain/neuron-count is not signed by anybody trusted: it has no signature; publish it with --sign" in unsigned
    )
    assert "org/neuron-renamed holds a signed variant of neuron-other" in renamed
