"""The version gate against a real registry: what may replace a published version, and what may not."""

import pytest

from kernels_neuron.errors import HubError
from kernels_neuron.hub.gate import Narrowed
from kernels_neuron.hub.upload import connect, plan_upload, read_release, upload


@pytest.fixture
def api(server):
    return connect(server.url, server.token)


def head(server) -> str:
    return server.store.repo("org/neuron-double").branches["v1"]


def test_a_narrower_release_is_refused_with_the_difference_and_nothing_is_written(server, api, build):
    first = upload(api, read_release(build()), "org")
    narrower = read_release(build(api={"dtypes": ["float32"], "limits": {"H": [1, 64]}}))
    with pytest.raises(Narrowed) as error:
        upload(api, narrower, "org")
    assert "torch-cpu: dtype bfloat16: is gone" in str(error.value)
    assert "torch-cpu: limit H: 1 to 64, was 1 to 4096" in str(error.value)
    assert error.value.hint == "publish as a new version: set version = 2 in kernel.toml"
    assert head(server) == first.commit


def test_a_wider_release_is_accepted_where_it_replaces_every_variant(server, api, build):
    upload(api, read_release(build(backends=("cpu", "neuron"))), "org")
    wider = build(backends=("cpu", "neuron"), api={"dtypes": ["float32", "bfloat16", "float16"]})
    assert plan_upload(api, read_release(wider), "org").api.widens == (
        "torch-cpu: dtype float16: is new",
        "torch-neuron: dtype float16: is new",
    )
    assert upload(api, read_release(wider), "org").changed


def test_a_wider_release_is_refused_where_a_variant_would_stay(server, api, build, tmp_path):
    first = upload(api, read_release(build(backends=("cpu", "neuron"))), "org")
    folder = build(backends=("cpu",), api={"dtypes": ["float32", "bfloat16", "float16"]})
    (folder / "build" / "torch-neuron").rename(tmp_path / "gone")
    with pytest.raises(Narrowed, match="dtype float16: is new, and torch-neuron would stay as it is"):
        upload(api, read_release(folder), "org")
    assert head(server) == first.commit


def test_other_bytes_with_the_same_api_replace_a_version(server, api, build):
    upload(api, read_release(build()), "org")
    assert upload(api, read_release(build(factor=7)), "org").changed


def test_a_narrower_release_is_a_new_version(server, api, build):
    upload(api, read_release(build()), "org")
    narrower = read_release(build(version=2, api={"dtypes": ["float32"]}))
    assert upload(api, narrower, "org").branch == "v2"


def test_a_published_variant_without_a_description_cannot_be_replaced(server, api, build, resign):
    folder = build()
    variant = folder / "build" / "torch-cpu"
    kept = (variant / "api.json").read_bytes()
    (variant / "api.json").unlink()
    resign(variant, "neuron-double", 1, "cpu")
    upload(api, read_release(folder), "org")
    assert not upload(api, read_release(folder), "org").changed
    (variant / "api.json").write_bytes(kept)
    resign(variant, "neuron-double", 1, "cpu")
    with pytest.raises(Narrowed, match=r"torch-cpu: the one there has no api\.json"):
        upload(api, read_release(folder), "org")


def test_a_description_of_a_later_schema_is_refused(server, api, build):
    upload(api, read_release(build(api={"schema": 2})), "org")
    with pytest.raises(HubError, match="schema has to be 1, got 2"):
        upload(api, read_release(build(factor=3)), "org")
