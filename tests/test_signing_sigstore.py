"""Sigstore bundles, checked without network: those of an instance made here, with every part a public bundle has.

What cannot be shown here is that a bundle of the public instance verifies: none is kept in this repository, and making
one takes the network. The verifier is the same, and that its roots come with the package is a test of its own.
"""

import base64
import hashlib
import json
import struct
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kernels_neuron.artifact import Metadata, digest_files
from kernels_neuron.errors import ArtifactError, UsageError
from kernels_neuron.loader import get_kernel
from kernels_neuron.signing import read_trusted, require_signed

_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_ECDSA = ec.ECDSA(hashes.SHA256())
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_usage(only: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage == only for usage in _USAGES})


class SigstoreInstance:
    """A certificate authority, a certificate log and a transparency log with one entry, all in memory."""

    def __init__(self) -> None:
        self._now = datetime.now(UTC).replace(microsecond=0)
        self._ca, self._certificate_log, self._log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        self._ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        builder = self._certificate(self._ca_name, self._ca, days=3650)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._ca_certificate = builder.add_extension(_key_usage("key_cert_sign"), critical=True).sign(
            self._ca, hashes.SHA256()
        )

    def trusted_root(self) -> str:
        """trusted_root.json."""
        certificates = [{"rawBytes": _b64(self._ca_certificate.public_bytes(Encoding.DER))}]
        root = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [self._log_entry("https://log.example", self._log)],
            "ctlogs": [self._log_entry("https://certificates.example", self._certificate_log)],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "example", "commonName": "authority"},
                    "uri": "https://authority.example",
                    "certChain": {"certificates": certificates},
                    "validFor": {"start": "2020-01-01T00:00:00Z"},
                }
            ],
            "timestampAuthorities": [],
        }
        return json.dumps(root)

    def sign(self, data: bytes, identity: str, issuer: str) -> dict[str, Any]:
        """A bundle over `data` by somebody whom `issuer` knows as `identity`."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signing_certificate(key, identity, issuer)
        signature = key.sign(data, _ECDSA)
        digest = hashlib.sha256(data)
        pem = certificate.public_bytes(Encoding.PEM)
        body = {
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": {"hash": {"algorithm": "sha256", "value": digest.hexdigest()}},
                "signature": {"content": _b64(signature), "publicKey": {"content": _b64(pem)}},
            },
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": _b64(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [self._entry(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())],
            },
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": _b64(digest.digest())},
                "signature": _b64(signature),
            },
        }

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: float
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(self._ca_name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(self._now - timedelta(minutes=1))
        return builder.not_valid_after(self._now + timedelta(days=days)).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca.public_key()), critical=False
        ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)  # fmt: skip

    def _signing_certificate(self, key: ec.EllipticCurvePrivateKey, identity: str, issuer: str) -> x509.Certificate:
        builder = self._certificate(x509.Name([]), key, days=0.01)
        builder = builder.add_extension(_key_usage("digital_signature"), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)])
        builder = builder.add_extension(names, critical=True)
        builder = builder.add_extension(x509.UnrecognizedExtension(_ISSUER, issuer.encode()), critical=False)
        # the log signs the certificate as it is without the log's own signature
        logged = self._logged(builder.sign(self._ca, hashes.SHA256()).tbs_certificate_bytes)
        return builder.add_extension(x509.UnrecognizedExtension(_SCT_LIST, logged), critical=False).sign(
            self._ca, hashes.SHA256()
        )

    def _logged(self, tbs: bytes) -> bytes:
        """RFC 6962, section 3.2: a list with one timestamp of the certificate log, in its DER octet string."""
        milliseconds = int(self._now.timestamp() * 1000)
        issuer = hashlib.sha256(_spki(self._ca)).digest()
        signed = struct.pack("!BBQH32s", 0, 0, milliseconds, 1, issuer) + len(tbs).to_bytes(3, "big") + tbs + b"\0\0"
        signature = self._certificate_log.sign(signed, _ECDSA)
        log_id = hashlib.sha256(_spki(self._certificate_log)).digest()
        one = struct.pack("!B32sQHBBH", 0, log_id, milliseconds, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(one) + 2, len(one)) + one
        return b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else b"\x81" + bytes([len(listed)])) + listed

    def _entry(self, body: bytes) -> dict[str, Any]:
        """An entry of the transparency log, which holds nothing else: a promise, a proof and a signed checkpoint."""
        log_id = hashlib.sha256(_spki(self._log)).digest()
        seconds = int(self._now.timestamp())
        promised = {"body": _b64(body), "integratedTime": seconds, "logID": log_id.hex(), "logIndex": 0}
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"log.example - 1\n1\n{_b64(root)}\n"
        signed_note = f"{note}\n\u2014 log.example {_b64(log_id[:4] + self._log.sign(note.encode(), _ECDSA))}\n"
        return {
            "logIndex": "0",
            "logId": {"keyId": _b64(log_id)},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
            "integratedTime": str(seconds),
            "inclusionPromise": {"signedEntryTimestamp": _b64(self._log.sign(rfc8785.dumps(promised), _ECDSA))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": signed_note},
            },
            "canonicalizedBody": _b64(body),
        }

    def _log_entry(self, url: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
        spki = _spki(key)
        public = {"rawBytes": _b64(spki), "keyDetails": "PKIX_ECDSA_P256_SHA_256"}
        return {
            "baseUrl": url,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {**public, "validFor": {"start": "2020-01-01T00:00:00Z"}},
            "logId": {"keyId": _b64(hashlib.sha256(spki).digest())},
        }


IDENTITY = "https://github.com/org/kernels/.github/workflows/build.yaml@refs/heads/main"
ISSUER = "https://token.actions.example"
METADATA = b'{"name": "neuron-x"}'
PUBLIC = f"sigstore {IDENTITY} {ISSUER} org/*"


@pytest.fixture(scope="module")
def instance():
    return SigstoreInstance()


@pytest.fixture
def trust(tmp_path, instance):
    """trust(line, ...): a file with these lines, beside the trusted root of the instance in root.json."""
    (tmp_path / "root.json").write_text(instance.trusted_root())

    def write(*lines):
        (tmp_path / "trusted").write_text("\n".join(lines))
        return tmp_path / "trusted"

    return write


def check(bundle: dict, keys, metadata: bytes = METADATA) -> str:
    return require_signed(
        metadata, None, json.dumps(bundle).encode(), repo_id="org/neuron-x", trusted=read_trusted(keys)
    )


def test_a_bundle_of_an_instance_of_ones_own_verifies_without_network(instance, trust):
    bundle = instance.sign(METADATA, IDENTITY, ISSUER)
    assert check(bundle, trust(f"{PUBLIC} root.json")) == f"sigstore {IDENTITY}"


def test_a_bundle_is_good_for_its_bytes_its_identity_its_issuer_and_its_roots_only(instance, trust):
    bundle = instance.sign(METADATA, IDENTITY, ISSUER)
    with pytest.raises(ArtifactError, match=r"does not verify .* digest mismatch"):
        check(bundle, trust(f"{PUBLIC} root.json"), METADATA + b" ")
    with pytest.raises(ArtifactError, match=r"does not verify for https://github\.com/lab.* SANs do not match"):
        check(bundle, trust(f"sigstore https://github.com/lab {ISSUER} org/* root.json"))
    with pytest.raises(ArtifactError, match="does not verify"):
        check(bundle, trust(f"sigstore {IDENTITY} https://token.other.example org/* root.json"))
    with pytest.raises(ArtifactError, match="does not verify"):
        check(SigstoreInstance().sign(METADATA, IDENTITY, ISSUER), trust(f"{PUBLIC} root.json"))
    with pytest.raises(ArtifactError, match="does not verify"):
        check(bundle, trust(PUBLIC))  # the public instance never saw it


def another(value: str) -> str:
    data = bytearray(base64.b64decode(value))
    data[-1] ^= 1
    return _b64(bytes(data))


@pytest.mark.parametrize(
    "path",
    [
        ("messageSignature", "signature"),
        ("verificationMaterial", "tlogEntries", 0, "inclusionPromise", "signedEntryTimestamp"),
        ("verificationMaterial", "tlogEntries", 0, "inclusionProof", "rootHash"),
        ("verificationMaterial", "tlogEntries", 0, "canonicalizedBody"),
        ("verificationMaterial", "certificate", "rawBytes"),
    ],
    ids=lambda path: path[-1],
)
def test_one_bit_of_any_part_refuses_the_bundle(instance, trust, path):
    bundle = instance.sign(METADATA, IDENTITY, ISSUER)
    part = bundle
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = another(part[path[-1]])
    with pytest.raises(ArtifactError, match="sigstore bundle"):
        check(bundle, trust(f"{PUBLIC} root.json"))


def test_a_time_outside_the_certificate_and_a_certificate_that_was_not_logged_are_refused(instance, trust):
    late = instance.sign(METADATA, IDENTITY, ISSUER)
    late["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = "4000000000"
    with pytest.raises(ArtifactError, match="does not verify"):
        check(late, trust(f"{PUBLIC} root.json"))
    other = SigstoreInstance()
    other._ca, other._ca_name, other._log = instance._ca, instance._ca_name, instance._log
    with pytest.raises(ArtifactError, match="SCT"):
        check(other.sign(METADATA, IDENTITY, ISSUER), trust(f"{PUBLIC} root.json"))


def test_roots_that_are_missing_or_unreadable_are_named(instance, trust, tmp_path):
    with pytest.raises(UsageError, match=r":1: there is no .*nowhere\.json"):
        read_trusted(trust(f"{PUBLIC} nowhere.json"))
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"the roots in .*broken\.json cannot be read"):
        check(instance.sign(METADATA, IDENTITY, ISSUER), trust(f"{PUBLIC} broken.json"))


def test_get_kernel_takes_a_variant_with_a_bundle_and_refuses_it_after_a_change(instance, trust, tmp_path):
    variant = tmp_path / "neuron-x" / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text("ANSWER = 42\n")
    about = ("neuron-x", "_neuron_x_cpu_sigstore42", 1, "mit", (), "cpu", digest_files(variant))
    (variant / "metadata.json").write_text(Metadata(*about).to_json())
    bundle = instance.sign((variant / "metadata.json").read_bytes(), IDENTITY, ISSUER)
    (variant / "metadata.json.sigstore").write_text(json.dumps(bundle))
    keys = trust(f"{PUBLIC} root.json")
    assert get_kernel(tmp_path / "neuron-x", variant="torch-cpu", require_signature=keys).ANSWER == 42
    (variant / "metadata.json").write_text(Metadata(*about[:2], 2, *about[3:]).to_json())
    with pytest.raises(ArtifactError, match="sigstore bundle does not verify"):
        get_kernel(tmp_path / "neuron-x", variant="torch-cpu", require_signature=keys)


def test_the_public_roots_come_with_the_package_and_need_no_network(tmp_path):
    code = """
import socket
def refuse(self, address):
    raise AssertionError("no network in this test")
socket.socket.connect = refuse
from sigstore.verify import Verifier
from sigstore.models import ClientTrustConfig
root = ClientTrustConfig.production(offline=True).trusted_root
print(len(root.get_fulcio_certs()), len(root._inner.tlogs), len(root._inner.ctlogs))
Verifier.production(offline=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(int(count) > 0 for count in done.stdout.split())
