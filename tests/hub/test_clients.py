"""The real clients, unmodified, each in a process of its own: huggingface_hub, kernels, hf."""

import json
import threading

import pytest

from kernels_neuron.hub.serving import run_server
from kernels_neuron.hub.storage.damage import find_damage
from kernels_neuron.hub.upload import connect, read_release, upload

HF_API = """
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import *
api = HfApi()
kind = {"repo_type": "kernel"}

def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


def test_huggingface_hub_creates_uploads_and_uploads_again(server, client, kernel):
    code = f"""{HF_API}
out["urls"] = [api.create_repo("org/k", exist_ok=True, **kind) for _ in range(2)]
for _ in range(2):
    api.create_branch("org/k", branch="v1", exist_ok=True, **kind)
out["twice"] = refused(api.create_repo, "org/k", **kind), refused(api.create_branch, "org/k", branch="v1", **kind)
folder = {str(kernel)!r}
send = lambda: api.upload_folder(folder_path=folder, repo_id="org/k", revision="v1", **kind).oid
out["first"], out["again"] = send(), send()
open(folder + "/benchmarks/benchmark.py", "a").write("# more")
out["changed"] = send()
out["history"] = [c.title for c in api.list_repo_commits("org/k", revision="v1", **kind)]
out["files"] = sorted(api.list_repo_files("org/k", revision="v1", **kind))
api.delete_file("benchmarks/benchmark.py", "org/k", revision="v1", **kind)
api.delete_folder("build/torch-cpu", "org/k", revision="v1", **kind)
out["left"] = api.list_repo_files("org/k", revision="v1", **kind)
api.create_tag("org/k", tag="release", revision=out["changed"], **kind)
refs = api.list_repo_refs("org/k", include_pull_requests=True, **kind)
out["tags"] = [tag.target_commit for tag in refs.tags]
api.delete_tag("org/k", tag="release", **kind)
api.delete_branch("org/k", branch="v1", **kind)
api.move_repo("org/k", "org/moved", **kind)
out["moved"] = api.repo_exists("org/moved", **kind), api.repo_exists("org/k", **kind)
api.delete_repo("org/moved", **kind)
"""
    out = client(server, code, server.token)
    assert out["urls"] == [f"{server.url}/kernels/org/k"] * 2
    assert ["409" in message for _, message in out["twice"]] == [True, True]
    assert out["first"] == out["again"] != out["changed"]
    assert len(out["history"]) == 3
    local = sorted(path.relative_to(kernel).as_posix() for path in kernel.rglob("*") if path.is_file())
    assert out["files"] == local
    assert out["left"] == ["README.md"]
    assert out["tags"] == [out["changed"]]
    assert out["moved"] == [True, False]
    assert server.store.ids() == []


def test_huggingface_hub_raises_its_own_exceptions(server, client, kernel):
    upload(connect(server.url, server.token), read_release(kernel), "org")
    server.store.create("org/hidden", author="x", private=True)
    reader = server.store.tokens.add("reader", {"*": "read"}, "now")
    code = f"""{HF_API}
get = lambda repo, path, **kw: refused(hf_hub_download, repo, path, **kind, **kw)
out["repo"] = get("org/nope", "x"), get("org/nope", "x", token={reader!r})
out["revision"] = get("org/neuron-double", "README.md", revision="v9")
out["file"] = get("org/neuron-double", "nope")
out["folder"] = refused(lambda: list(api.list_repo_tree("org/neuron-double", "nope", **kind)))
out["hidden"] = refused(api.list_repo_refs, "org/hidden", **kind)
out["seen"] = api.list_repo_refs("org/hidden", token={reader!r}, **kind).branches[0].name
out["wrong"] = refused(api.list_repo_refs, "org/neuron-double", token="hf_wrong", **kind)
out["reader"] = refused(api.create_repo, "org/new", token={reader!r}, **kind)
out["anonymous"] = refused(api.create_branch, "org/neuron-double", branch="v9", **kind)
where = dict(path_in_repo="build/torch-cpu/layers.py", repo_id="org/neuron-double", revision="v1", **kind)
out["digest"] = refused(api.upload_file, path_or_fileobj=b"planted", token={server.token!r}, **where)
"""
    out = client(server, code)
    assert [name for name, _ in out["repo"]] == ["RepositoryNotFoundError"] * 2
    assert out["revision"][0] == "RevisionNotFoundError"
    assert out["file"][0] == out["folder"][0] == "RemoteEntryNotFoundError"
    assert (out["hidden"][0], out["seen"]) == ("RepositoryNotFoundError", "main")
    assert out["wrong"][0] == "HfHubHTTPError" and "Invalid credentials" in out["wrong"][1]
    assert out["reader"][0] == "HfHubHTTPError" and "rights" in out["reader"][1]
    assert out["anonymous"][0] == "HfHubHTTPError" and "HF_TOKEN" in out["anonymous"][1]
    assert out["digest"][0] == "BadRequestError" and "layers.py does not match its digest" in out["digest"][1]
    assert "org/new" not in server.store.ids()


def test_awkward_names_come_back_byte_for_byte_and_dangerous_ones_do_not(server, client):
    code = f"""{HF_API}
api.create_repo("org/k", **kind)
api.create_branch("org/k", branch="feat/x", **kind)
names = ["a b/ü.txt", "50%25.txt", "#1?.txt", "日本/語", "a+b&c=d", "plain"]
content = lambda name: name.encode() + bytes(range(256))
at = dict(repo_id="org/k", revision="feat/x", **kind)
for name in names:
    api.upload_file(path_or_fileobj=content(name), path_in_repo=name, **at)
read = lambda name: open(hf_hub_download(filename=name, **at), "rb").read()
out["same"] = [read(name) == content(name) for name in names]
out["listed"] = sorted(api.list_repo_files("org/k", revision="feat/x", **kind)) == sorted(names)
out["bad"] = [
    refused(api.upload_file, path_or_fileobj=b"x", path_in_repo=name, **at)
    for name in ["a/../../x", "C:\\\\x", "CON", "x.", "x ", "PLAIN", "plain/x"]
]
made = api.upload_file(path_or_fileobj=b"pr", path_in_repo="pr", repo_id="org/k", create_pr=True, **kind)
out["pr"] = open(hf_hub_download("org/k", "pr", revision="refs/pr/1", **kind)).read()
"""
    out = client(server, code, server.token)
    assert out["same"] == [True] * 6 and out["listed"]
    assert all(out["bad"]) and {name for name, _ in out["bad"]} <= {"BadRequestError", "ValueError"}
    assert out["pr"] == "pr"


def test_get_kernel_loads_by_version_branch_and_commit(server, client, build):
    api = connect(server.url, server.token)
    first = upload(api, read_release(build(version=1, factor=2)), "org")
    upload(api, read_release(build(version=2, factor=4)), "org")
    upload(api, read_release(build("neuron-only", backends=("neuron",))), "org")
    code = f"""
import logging
import torch
from kernels import get_kernel, has_kernel
repo = "org/neuron-double"

class Said(logging.Handler):
    lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())
    def text(self):
        return "\\n".join(self.lines)

said = Said()
logging.getLogger("kernels").addHandler(said)

def doubled(**which):
    return get_kernel(repo, **which).double(torch.ones(1)).item()

def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except Exception as error:
        return [type(error).__name__, str(error)]

out["results"] = [doubled(version=1), doubled(version=2), doubled(revision="v1"), doubled(revision="refs/heads/v2"),
                  doubled(revision={first.commit!r})]
out["warned"] = said.text()
out["has"] = [has_kernel(repo, version=1), has_kernel("org/neuron-only", version=1)]
out["layers"] = get_kernel(repo, version=1).layers.Double()(torch.ones(1)).item()
out["version"] = refused(get_kernel, repo, version=9)
out["repo"] = refused(get_kernel, "org/nope", version=1)
out["variant"] = refused(get_kernel, "org/neuron-only", version=1)
"""
    out = client(server, code)
    assert out["results"] == [2, 4, 2, 4, 2]
    assert "version 1 of 'org/neuron-double', but version 2 is available" in out["warned"]
    assert out["has"] == [True, False]
    assert out["layers"] == 2
    assert out["version"][0] == "ValueError"
    assert out["repo"][0] == "RepositoryNotFoundError"
    assert out["variant"][0] == "FileNotFoundError"


def test_what_was_uploaded_is_there_after_a_restart(tmp_path, client, kernel):
    with run_server(tmp_path / "registry") as server:
        done = upload(connect(server.url, server.token), read_release(kernel), "org")
    with run_server(tmp_path / "registry") as server:
        code = f"""{HF_API}
out["sha"] = api.kernel_info("org/neuron-double", revision="v1").sha
out["text"] = open(hf_hub_download("org/neuron-double", "build/torch-cpu/_double.py", revision="v1", **kind)).read()
"""
        out = client(server, code)
        assert find_damage(server.store) == []
    assert out == {"sha": done.commit, "text": (kernel / "build/torch-cpu/_double.py").read_text()}


def test_of_two_clients_that_name_one_parent_one_gets_412(server, client, tmp_path):
    api = connect(server.url, server.token)
    api.create_repo("org/k", repo_type="kernel")
    parent = server.store.repo("org/k").branches["main"]
    code = f"""{HF_API}
from huggingface_hub import CommitOperationAdd
add = lambda name: [CommitOperationAdd(f"{{name}}/{{i}}", name.encode() * 1000) for i in range(20)]
out["error"] = refused(api.create_commit, "org/k", add("NAME"), commit_message="x", parent_commit={parent!r}, **kind)
"""
    results = {}

    def race(name: str) -> None:
        results[name] = client(server, code.replace("NAME", name), server.token, tmp_path / name)["error"]

    threads = [threading.Thread(target=race, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [name for name, error in results.items() if error is None]
    (loser,) = [error for error in results.values() if error is not None]
    assert loser[0] == "HfHubHTTPError" and "412" in loser[1]
    files = server.store.commit(server.store.repo("org/k"), "main").files
    assert {path.split("/")[0] for path in files} == {winner} and len(files) == 20


@pytest.mark.slow
def test_hf_creates_uploads_and_downloads(server, command, kernel, tmp_path):
    def hf(*argv: str) -> str:
        done = command(server, "hf", *argv, token=server.token)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "local" in hf("auth", "whoami")
    for _ in range(2):
        hf("repos", "create", "org/k", "--type", "kernel", "--exist-ok")
    for _ in range(2):
        hf("upload", "org/k", str(kernel), ".", "--type", "kernel", "--revision", "v1")
    assert len(list(server.store.history(server.store.repo("org/k"), "v1"))) == 2
    hf("download", "org/k", "--type", "kernel", "--revision", "v1", "--local-dir", str(tmp_path / "got"))
    for path in kernel.rglob("*"):
        if path.is_file():
            assert (tmp_path / "got" / path.relative_to(kernel)).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_the_kernels_command_lists_describes_and_locks(server, client, command, build, tmp_path):
    api = connect(server.url, server.token)
    upload(api, read_release(build(version=1)), "org")
    upload(api, read_release(build(version=2, factor=4)), "org")

    versions = command(server, "kernels", "versions", "org/neuron-double")
    assert versions.returncode == 0 and "2" in versions.stdout, versions.stderr
    info = command(server, "kernels", "info", "org/neuron-double", "--json")
    assert info.returncode == 0, info.stderr
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"org/neuron-double" = 1\n')
    assert command(server, "kernels", "lock", str(project)).returncode == 0
    locked = json.loads((project / "kernels.lock").read_text())
    assert locked[0]["lock"]["commit"] == server.store.repo("org/neuron-double").branches["v1"]
    assert command(server, "kernels", "download", str(project)).returncode == 0
    upload(api, read_release(build(version=1, factor=8)), "org")  # the branch moves on, the lock does not
    code = f"""
import torch
from kernels import get_locked_kernel
kernel = get_locked_kernel("org/neuron-double", lockfile=__import__("pathlib").Path({str(project / "kernels.lock")!r}))
out["doubled"] = kernel.double(torch.ones(1)).item()
"""
    assert client(server, code) == {"doubled": 2}
    signature = command(server, "kernels", "verify-signature", "org/neuron-double", "1")
    assert signature.returncode == 1


BENCHMARK = """
import torch
from kernels.benchmark import Benchmark


class Double(Benchmark):
    seed = 0

    def setup(self):
        self.x = torch.ones(4)
        self.out = torch.empty(4)

    def benchmark_ones(self):
        self.out = self.kernel.double(self.x)

    def verify_ones(self):
        return self.x * 2
"""


@pytest.mark.slow
def test_the_kernels_command_runs_a_benchmark_from_the_repo(server, command, kernel):
    pytest.importorskip("tabulate", reason="`kernels benchmark` prints with it")
    (kernel / "benchmarks" / "benchmark.py").write_text(BENCHMARK)
    upload(connect(server.url, server.token), read_release(kernel), "org")
    bench = command(server, "kernels", "benchmark", "org/neuron-double", "--version", "1")
    assert bench.returncode == 0, bench.stdout + bench.stderr


@pytest.mark.slow
def test_kernelize_loads_a_layer_and_an_untrusted_owner_is_refused(tmp_path, client, kernel):
    with run_server(tmp_path / "registry", untrusted=frozenset({"shady"})) as server:
        api = connect(server.url, server.token)
        for owner in ("org", "shady"):
            upload(api, read_release(kernel), owner)
        code = """
import torch
from kernels import LayerRepository, Mode, get_kernel, kernelize, register_kernel_mapping, use_kernel_forward_from_hub

@use_kernel_forward_from_hub("Double")
class Plain(torch.nn.Module):
    def forward(self, x):
        return x + 100

layer = LayerRepository(repo_id="org/neuron-double", layer_name="Double", version=1)
register_kernel_mapping({"Double": {"cpu": layer}})
model = kernelize(Plain(), device="cpu", mode=Mode.INFERENCE)
out["layer"] = model(torch.ones(1)).item()
try:
    get_kernel("shady/neuron-double", version=1)
except ValueError as error:
    out["refused"] = str(error)
out["allowed"] = get_kernel("shady/neuron-double", version=1, trust_remote_code=["shady/neuron-double"]).double(1)
"""
        out = client(server, code)
    assert out["layer"] == 2 and out["allowed"] == 2
    assert "not from a trusted publisher" in out["refused"]


@pytest.mark.slow
def test_three_thousand_files_and_a_large_one(server, client, tmp_path):
    many = tmp_path / "many"
    for i in range(3000):
        path = many / f"d{i % 30}" / f"f{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(i))
    code = f"""{HF_API}
import os
api.create_repo("org/k", **kind)
api.upload_folder(folder_path={str(many)!r}, repo_id="org/k", **kind)
out["listed"] = len(list(api.list_repo_tree("org/k", recursive=True, **kind)))
content = os.urandom(2**20) * 60
api.upload_file(path_or_fileobj=content, path_in_repo="large", repo_id="org/k", **kind)
out["same"] = open(hf_hub_download("org/k", "large", **kind), "rb").read() == content
"""
    out = client(server, code, server.token)
    assert out == {"listed": 3030, "same": True}
