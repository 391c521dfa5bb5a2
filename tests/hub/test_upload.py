"""Publishing: what an upload changes, that a second one changes nothing, and how each refusal reads."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kernels_neuron.errors import ArtifactError, HubError
from kernels_neuron.hub.storage.damage import find_damage
from kernels_neuron.hub.store import Message, Put
from kernels_neuron.hub.upload import Plan, check_rights, connect, plan_upload, read_release, signed, upload


@pytest.fixture
def api(server):
    return connect(server.url, server.token)


def files(server, repo_id: str, revision: str) -> dict[str, bytes]:
    found = server.store.commit(server.store.repo(repo_id), revision).files
    return {path: server.store.blobs.path(blob.sha256).read_bytes() for path, blob in found.items()}


def commits(server, repo_id: str, revision: str) -> int:
    return len(list(server.store.history(server.store.repo(repo_id), revision)))


def plant(server, repo_id: str, branch: str, **contents: bytes) -> None:
    """Files that somebody else put into the repo."""
    with server.store.blobs.batch() as batch:
        puts = [Put(path.replace("__", "/"), batch.put(data)) for path, data in contents.items()]
    server.store.add_commit(repo_id, branch, puts, Message("foreign", "somebody"))


def test_a_first_upload_makes_repo_branch_and_one_commit_on_each(server, api, kernel):
    done = upload(api, read_release(kernel), "org")
    assert (done.repo_id, done.branch, done.changed) == ("org/neuron-double", "v1", True)
    local = {p.relative_to(kernel).as_posix(): p.read_bytes() for p in kernel.rglob("*") if p.is_file()}
    card = local.pop("README.md")
    assert files(server, done.repo_id, done.commit) == files(server, done.repo_id, "v1") == local
    assert files(server, done.repo_id, "main") == {"README.md": card}
    assert commits(server, done.repo_id, "v1") == commits(server, done.repo_id, "main") == 2
    assert find_damage(server.store) == []


def test_an_identical_second_upload_makes_no_commit(server, api, kernel):
    first = upload(api, read_release(kernel), "org")
    second = upload(api, read_release(kernel), "org")
    assert (second.commit, second.changed) == (first.commit, False)
    assert commits(server, first.repo_id, "v1") == 2


def test_stale_files_of_the_variants_go_and_foreign_files_stay(server, api, kernel, resign):
    upload(api, read_release(kernel), "org")
    foreign = {"build__torch-cuda__x.so": b"so", "benchmarks__own.py": b"b", "NOTES": b"n"}
    plant(server, "org/neuron-double", "v1", **foreign)
    variant = kernel / "build" / "torch-cpu"
    (variant / "_double.py").rename(variant / "_twice.py")
    init = variant / "__init__.py"
    init.write_text(init.read_text().replace("_double", "_twice"))
    resign(variant, "neuron-double", 1, "cpu")
    done = upload(api, read_release(kernel), "org")
    assert done.plan.deletes == ("build/torch-cpu/_double.py",)
    assert done.plan.adds == ("build/torch-cpu/_twice.py",)
    assert set(done.plan.changes) == {"build/torch-cpu/__init__.py", "build/torch-cpu/metadata.json"}
    there = files(server, "org/neuron-double", "v1")
    assert "build/torch-cpu/_double.py" not in there
    assert {"build/torch-cuda/x.so", "benchmarks/own.py", "NOTES"} <= set(there)
    assert commits(server, "org/neuron-double", "v1") == 4


def test_a_new_version_branch_starts_without_what_main_held(server, api, build):
    server.store.create("org/neuron-double", author="somebody")
    plant(
        server,
        "org/neuron-double",
        "main",
        **{"build__torch-cpu__old.py": b"", "benchmarks__old.py": b"", "NOTES": b""},
    )
    upload(api, read_release(build()), "org")
    assert {"build/torch-cpu/old.py", "benchmarks/old.py"}.isdisjoint(files(server, "org/neuron-double", "v1"))
    assert "NOTES" in files(server, "org/neuron-double", "v1")
    assert "build/torch-cpu/old.py" in files(server, "org/neuron-double", "main")


def test_two_versions_stand_side_by_side(server, api, build):
    first = upload(api, read_release(build(version=1)), "org")
    second = upload(api, read_release(build(version=2, factor=4)), "org")
    assert (first.branch, second.branch) == ("v1", "v2")
    assert files(server, "org/neuron-double", "v1") != files(server, "org/neuron-double", "v2")
    assert commits(server, "org/neuron-double", "v1") == 2


def test_a_plan_writes_nothing_and_says_what_would_change(server, api, kernel):
    plan = plan_upload(api, read_release(kernel), "org")
    assert plan.creates_repo and plan.creates_branch and plan.card_changes and not plan.is_empty
    assert len(plan.adds) == 6
    assert server.store.ids() == []
    upload(api, read_release(kernel), "org")
    assert plan_upload(api, read_release(kernel), "org").is_empty


def test_an_upload_that_was_interrupted_is_completed_by_the_next(server, api, kernel, monkeypatch):
    release = read_release(kernel)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(api), "create_commit", interrupted)
        upload(api, release, "org")
    assert files(server, "org/neuron-double", "v1") == {}
    assert upload(api, release, "org").changed
    assert not upload(api, release, "org").changed


def test_of_two_racing_uploads_the_loser_is_told_and_no_mixture_is_left(server, api, build, tmp_path):
    upload(api, read_release(build()), "org")
    release = read_release(build(factor=3))
    real = type(api).create_commit
    rival = read_release(build(factor=5))

    def overtaken(self, *args, **kwargs):
        type(api).create_commit = real
        upload(api, rival, "org")
        return real(self, *args, **kwargs)

    type(api).create_commit = overtaken
    try:
        with pytest.raises(HubError, match="somebody else published") as error:
            upload(api, release, "org")
    finally:
        type(api).create_commit = real
    assert "again" in error.value.hint
    there = files(server, "org/neuron-double", "v1")
    assert all(there[path] == data for path, data in rival.files.items())


def test_a_read_back_that_differs_is_an_error(server, api, kernel, monkeypatch):
    # ours would notice; a Hub need not
    monkeypatch.setattr("kernels_neuron.hub.handlers.files._WHOLE_BYTES", -1)
    done = upload(api, read_release(kernel), "org")
    commit = server.store.commit(server.store.repo(done.repo_id), "v1")
    blob = server.store.blobs.path(commit.files["build/torch-cpu/layers.py"].sha256)
    blob.write_bytes(blob.read_bytes().replace(b"torch", b"TORCH"))
    with pytest.raises(HubError, match=r"layers\.py .* reads back with another digest"):
        upload(api, read_release(kernel), "org")


def test_a_private_repo_is_made_private(server, api, kernel):
    upload(api, read_release(kernel), "org", private=True)
    assert server.store.repo("org/neuron-double").private


def test_rights_are_the_callers_own(server):
    assert check_rights(connect(server.url, server.token), None, ["k"]) == "local"
    assert check_rights(connect(server.url, server.token), "org", ["k"]) == "org"
    reader = server.store.tokens.add("reader", {"*": "read"}, "now")
    with pytest.raises(HubError, match=r"reader .* may only read") as error:
        check_rights(connect(server.url, reader), "org", ["k"])
    assert "HF_TOKEN" in error.value.hint


def test_a_wrong_token_is_one_clear_error(server):
    with pytest.raises(HubError, match=f"the token is unknown to {server.url}") as error:
        check_rights(connect(server.url, "hf_wrong"), "org", ["k"])
    assert "HF_TOKEN" in error.value.hint


def test_no_token_is_one_clear_error(server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.hf_api.get_token", lambda: None)
    with pytest.raises(HubError, match="publishing takes a token") as error:
        check_rights(connect(server.url), "org", ["k"])
    assert "HF_TOKEN" in error.value.hint


def test_a_registry_that_is_down_is_one_clear_error():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(HubError, match=f"no Hub answers at {url}") as error:
            check_rights(connect(url, "hf_x"), "org", ["k"])
    assert "registry serve" in error.value.hint


def test_something_that_is_not_a_hub_is_one_clear_error():
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *args) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as page:
        thread = threading.Thread(target=page.handle_request)
        thread.start()
        with pytest.raises(HubError, match="is not a Hub"):
            check_rights(connect(f"http://127.0.0.1:{page.server_port}", "hf_x"), "org", ["k"])
        thread.join()


@pytest.mark.parametrize("to", ["registry", "ftp://x", ""])
def test_what_is_not_a_url_is_refused(to):
    with pytest.raises(HubError, match="is not the URL of a Hub"):
        connect(to)


@pytest.mark.parametrize("owner", ["a/b", "-x", "a..b", "api"])
def test_an_owner_that_no_hub_takes_is_one_clear_error(server, api, kernel, owner):
    with pytest.raises(HubError):
        upload(api, read_release(kernel), owner)
    assert server.store.ids() == []


@pytest.mark.parametrize("card", ["---\nlicense: [\n---\n", "---\nlicense: mit\n", "---\n- a\n---\n"])
def test_a_card_with_broken_front_matter_is_refused_before_anything_is_sent(kernel, card):
    (kernel / "README.md").write_text(card)
    with pytest.raises(ArtifactError, match=r"README\.md: the YAML front matter"):
        read_release(kernel)


def test_a_damaged_build_is_refused_before_anything_is_sent(kernel):
    (kernel / "build" / "torch-cpu" / "layers.py").write_text("planted")
    with pytest.raises(ArtifactError, match=r"layers\.py: changed"):
        read_release(kernel)


def test_variants_of_two_versions_are_refused(build):
    build(version=1, backends=("cpu",))
    folder = build(version=2, backends=("neuron",))
    with pytest.raises(ArtifactError, match="versions 1, 2"):
        read_release(folder)


def test_a_folder_without_variants_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(ArtifactError, match="holds no built variant") as error:
        read_release(tmp_path)
    assert "build" in error.value.hint


def test_bytecode_is_never_uploaded(kernel):
    cache = kernel / "build" / "torch-cpu" / "__pycache__"
    cache.mkdir()
    (cache / "layers.cpython-311.pyc").write_bytes(b"x")
    (kernel / "build" / "torch-cpu" / "x.pyc").write_bytes(b"x")
    assert not [path for path in read_release(kernel).files if path.endswith(".pyc")]


def test_the_registry_refuses_a_variant_whose_digest_is_wrong(server, api, kernel):
    release = read_release(kernel)
    metadata = json.loads(release.files["build/torch-cpu/metadata.json"])
    metadata["digest"]["files"]["layers.py"] = "A" * 43 + "="
    release.files["build/torch-cpu/metadata.json"] = json.dumps(metadata).encode()
    with pytest.raises(HubError, match=r"layers\.py does not match its digest"):
        upload(api, release, "org")
    assert files(server, "org/neuron-double", "v1") == {}


def test_a_plan_with_only_a_new_branch_is_not_empty():
    assert not Plan("a/b", "v1", False, True, (), (), (), False).is_empty
    assert Plan("a/b", "v1", False, False, (), (), (), False).is_empty


@pytest.fixture
def key():
    return pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey.generate()


def test_a_signature_lies_beside_the_variants_and_signing_again_changes_nothing(server, api, kernel, key):
    done = upload(api, signed(read_release(kernel), key), "org")
    assert "signatures/torch-cpu.json" in files(server, done.repo_id, "v1")
    assert not upload(api, signed(read_release(kernel), key), "org").changed
    assert not upload(api, read_release(kernel), "org").changed, "what is signed stays signed"


def test_a_signature_goes_with_the_metadata_it_signed(server, api, build, key):
    upload(api, signed(read_release(build()), key), "org")
    done = upload(api, read_release(build(factor=5)), "org")
    assert done.plan.deletes == ("signatures/torch-cpu.json",)
    assert "signatures/torch-cpu.json" not in files(server, done.repo_id, "v1")
