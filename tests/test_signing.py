"""Keys, signatures and the file of trusted keys, without any network."""

import base64
import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from kernels_neuron.errors import ArtifactError, UsageError
from kernels_neuron.signing import public_text, read_private_key, read_trusted, require_signed, sign

METADATA = b'{"name": "neuron-gemm"}'
PEM = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)


@pytest.fixture
def key(tmp_path):
    made = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(made.private_bytes(*PEM, serialization.NoEncryption()))
    return read_private_key(tmp_path / "key.pem")


@pytest.fixture
def trust(tmp_path):
    def write(text: str):
        (tmp_path / "trusted").write_text(text)
        return read_trusted(tmp_path / "trusted")

    return write


def test_a_signature_by_a_trusted_key_passes_and_says_who(key, trust):
    trusted = trust(f"# ours\n\n{public_text(key)} org/*  # ci\n")
    who = require_signed(METADATA, sign(key, METADATA), None, repo_id="org/neuron-gemm", trusted=trusted)
    assert who == public_text(key)
    assert sign(key, METADATA) == sign(key, METADATA)


def changed(record: bytes, **fields) -> bytes:
    return json.dumps(json.loads(record) | fields).encode()


OTHER = base64.b64encode(bytes(range(32))).decode()
SPOILED = {
    "other metadata": (lambda s: s, METADATA + b" ", "does not fit metadata.json"),
    "no signature": (lambda s: None, METADATA, "it has no signature"),
    "another key": (lambda s: changed(s, key=OTHER), METADATA, "is not trusted for this repo"),
    "another signature": (lambda s: changed(s, signature=OTHER), METADATA, "does not fit metadata.json"),
    "not base64": (lambda s: changed(s, signature="%"), METADATA, "is not base64"),
    "another algorithm": (lambda s: changed(s, algorithm="none"), METADATA, "of the kind 'none'"),
    "not JSON": (lambda s: b"\xff", METADATA, "cannot be read"),
    "a list": (lambda s: b"[]", METADATA, "cannot be read"),
    "nothing in it": (lambda s: b"{}", METADATA, "cannot be read"),
}


@pytest.mark.parametrize(("spoil", "metadata", "said"), SPOILED.values(), ids=SPOILED)
def test_what_is_not_signed_by_somebody_trusted_is_refused(key, trust, spoil, metadata, said):
    trusted = trust(f"{public_text(key)} *\n")
    with pytest.raises(ArtifactError, match=said) as error:
        require_signed(metadata, spoil(sign(key, METADATA)), None, repo_id="org/neuron-gemm", trusted=trusted)
    assert "--sign" in error.value.hint


def test_a_key_may_sign_only_for_its_repos(key, trust):
    trusted = trust(f"{public_text(key)} org/neuron-*,lab/neuron-gemm\n")
    signature = sign(key, METADATA)
    for repo_id in ("org/neuron-gemm", "lab/neuron-gemm", "neuron-gemm"):
        assert require_signed(METADATA, signature, None, repo_id=repo_id, trusted=trusted)
    for repo_id in ("evil/neuron-gemm", "lab/neuron-vit-attn", "gemm"):
        with pytest.raises(ArtifactError, match=f"no trusted key may sign for {repo_id}"):
            require_signed(METADATA, signature, None, repo_id=repo_id, trusted=trusted)


def test_a_sigstore_bundle_that_is_none_is_refused_and_one_that_nobody_trusts_is_named(key, trust):
    identity = "sigstore https://github.com/o/r/.github/workflows/b.yaml@refs/heads/main https://token.example *\n"
    with pytest.raises(ArtifactError, match="its sigstore bundle cannot be read"):
        require_signed(METADATA, None, b"{}", repo_id="org/x", trusted=trust(identity))
    with pytest.raises(ArtifactError, match="of nobody this file trusts"):
        require_signed(METADATA, None, b"{}", repo_id="org/x", trusted=trust(f"{public_text(key)} *\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "trusts nobody"),
        ("# only talk\n", "trusts nobody"),
        ("ed25519 AAAA org/*\n", ":1: an Ed25519 key is 32 bytes"),
        ("\nrsa AAAA org/*\n", ":2: cannot be read: rsa"),
        (f"ed25519 {OTHER}\n", ":1: cannot be read"),
        ("sigstore me *\n", ":1: cannot be read"),
    ],
)
def test_a_file_of_trusted_keys_that_cannot_be_read_is_refused(trust, text, said):
    with pytest.raises(UsageError, match=said):
        trust(text)


def test_the_users_own_file_is_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELS_NEURON_TRUSTED_KEYS", str(tmp_path / "mine"))
    with pytest.raises(UsageError, match=r"there is no file of trusted keys .*mine"):
        read_trusted(True)
    (tmp_path / "mine").write_text(f"ed25519 {OTHER} *\n")
    assert read_trusted(True)[0].who == (OTHER,)


def test_a_key_file_that_is_missing_encrypted_or_of_another_kind_is_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no key file") as error:
        read_private_key(tmp_path / "none.pem")
    assert "openssl genpkey" in error.value.hint
    locked = ed25519.Ed25519PrivateKey.generate().private_bytes(*PEM, serialization.BestAvailableEncryption(b"x"))
    curve = ec.generate_private_key(ec.SECP256R1()).private_bytes(*PEM, serialization.NoEncryption())
    for data, said in ((locked, "no unencrypted PEM key"), (curve, "an Ed25519 key"), (b"x", "no unencrypted PEM")):
        (tmp_path / "key.pem").write_bytes(data)
        with pytest.raises(UsageError, match=said):
            read_private_key(tmp_path / "key.pem")
