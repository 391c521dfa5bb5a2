"""Signatures over metadata.json: made with an Ed25519 key, checked against a file of keys somebody decided to trust.

metadata.json lists a digest of every file, so who signs it signs the variant. A signature lies beside the variants, in
signatures/<variant>.json, because a file inside a variant would have to be in the digest it signs.
"""

import base64
import binascii
import json
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURES = "signatures"
TRUSTED_KEYS = "KERNELS_NEURON_TRUSTED_KEYS"
_DEFAULT_FILE = "~/.config/kernels-neuron/trusted_keys"
_KEY_HINT = "openssl genpkey -algorithm ed25519 -out key.pem makes a key"
_LINE = "a line is `ed25519 <base64 key> <repos>` or `sigstore <identity> <issuer> <repos> [trusted_root.json]`"


def signature_path(variant: str) -> str:
    """Where the signature of a variant lies in its repo."""
    return f"{SIGNATURES}/{variant}.json"


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """The Ed25519 key in a PEM file without a passphrase."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError:
        raise UsageError(f"there is no key file {path}", hint=_KEY_HINT) from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} is no unencrypted PEM key: {error}", hint=_KEY_HINT) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} has to hold an Ed25519 key", hint=_KEY_HINT)
    return key


def public_text(key: "Ed25519PrivateKey") -> str:
    """The public half as a trusted-keys file writes it: ed25519 and base64."""
    return f"ed25519 {base64.b64encode(key.public_key().public_bytes_raw()).decode()}"


def sign(key: "Ed25519PrivateKey", metadata: bytes) -> bytes:
    """The content of signatures/<variant>.json for these bytes of metadata.json: the same bytes each time."""
    record = {
        "algorithm": "ed25519",
        "key": base64.b64encode(key.public_key().public_bytes_raw()).decode(),
        "signature": base64.b64encode(key.sign(metadata)).decode(),
    }
    return (json.dumps(record, indent=1) + "\n").encode()


@dataclass(frozen=True)
class Trusted:
    """One line of a trusted-keys file: a key, or an identity and its issuer, and the repos it may sign for.

    root  the trusted_root.json of a Sigstore instance of your own; None: the production instance
    """

    kind: str
    who: tuple[str, ...]
    repos: str
    root: Path | None = None

    def covers(self, repo_id: str) -> bool:
        """Whether it may sign for owner/name, or for the name of a folder that no owner is known of.

        `repos` are comma-separated patterns such as org/* or */neuron-gemm.
        """
        patterns = self.repos.split(",")
        if "/" not in repo_id:
            patterns = [pattern.rpartition("/")[2] for pattern in patterns]
        return any(fnmatchcase(repo_id, pattern) for pattern in patterns)


def read_trusted(file: Path | str | bool) -> list[Trusted]:
    """The lines of a trusted-keys file. True: $KERNELS_NEURON_TRUSTED_KEYS or ~/.config/kernels-neuron/trusted_keys.

    Refuses an unreadable line, a key of another kind and an empty file.
    """
    path = Path(os.environ.get(TRUSTED_KEYS) or _DEFAULT_FILE).expanduser() if file is True else Path(str(file))
    try:
        lines = path.read_text("utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError, IsADirectoryError):
        hint = f"write one, or name it in {TRUSTED_KEYS}; {_LINE}"
        raise UsageError(f"there is no file of trusted keys {path}", hint=hint) from None
    found = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            found.append(_trusted(words, f"{path}:{number}", path.parent))
    if not found:
        raise UsageError(f"{path} trusts nobody", hint=_LINE)
    return found


def _trusted(words: list[str], where: str, folder: Path) -> Trusted:
    kind, *rest = words
    if kind == "sigstore" and len(rest) in (3, 4):
        root = folder / rest[3] if len(rest) == 4 else None
        if root is not None and not root.is_file():
            raise UsageError(f"{where}: there is no {root}", hint="name the trusted root of your Sigstore instance")
        return Trusted(kind, (rest[0], rest[1]), rest[2], root)
    if (kind, len(rest)) != ("ed25519", 2):
        raise UsageError(f"{where}: cannot be read: {' '.join(words)[:80]}", hint=_LINE)
    if len(_decoded(rest[0]) or b"") != 32:
        raise UsageError(f"{where}: an Ed25519 key is 32 bytes in base64, got {rest[0][:60]}", hint=_LINE)
    return Trusted(kind, (rest[0],), rest[1])


def require_signed(
    metadata: bytes, signature: bytes | None, bundle: bytes | None, *, repo_id: str, trusted: list[Trusted]
) -> str:
    """Who signed these bytes of metadata.json, in words. Raises ArtifactError unless somebody did who may.

    signature  what signatures/<variant>.json holds, or None
    bundle     what metadata.json.sigstore holds, or None; checked without network
    """
    mine = [one for one in trusted if one.covers(repo_id)]
    if not mine:
        raise ArtifactError(f"no trusted key may sign for {repo_id}", hint="add a line to the file of trusted keys")
    reasons = []
    if signature is not None:
        reason = _ed25519_problem(metadata, signature, [one for one in mine if one.kind == "ed25519"])
        if reason is None:
            return f"ed25519 {json.loads(signature)['key']}"
        reasons.append(reason)
    if bundle is not None:
        for one in (one for one in mine if one.kind == "sigstore"):
            reason = _sigstore_problem(metadata, bundle, one)
            if reason is None:
                return f"sigstore {one.who[0]}"
            reasons.append(reason)
        if not any(one.kind == "sigstore" for one in mine):
            reasons.append("its sigstore bundle is of nobody this file trusts")
    text = "; ".join(reasons) or "it has no signature"
    raise ArtifactError(
        f"{repo_id} is not signed by anybody trusted: {text}",
        hint="publish it with --sign, or load it without require_signature if you know where it comes from",
    )


def _ed25519_problem(metadata: bytes, signature: bytes, trusted: list[Trusted]) -> str | None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        record: Any = json.loads(signature)
        key, value = record["key"], record["signature"]
        algorithm, raw = record["algorithm"], _decoded(value)
    except (ValueError, KeyError, TypeError):
        return "its signature file cannot be read"
    if algorithm != "ed25519":
        return f"its signature is of the kind {algorithm!r}, and not ed25519"
    if raw is None:
        return "its signature is not base64"
    if key not in [one.who[0] for one in trusted]:
        return f"it is signed with the key {key}, which is not trusted for this repo"
    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(key)).verify(raw, metadata)
    except (InvalidSignature, ValueError):
        return "the signature does not fit metadata.json"
    return None


def _sigstore_problem(metadata: bytes, bundle: bytes, trusted: Trusted) -> str | None:
    try:
        from sigstore.errors import Error, VerificationError
        from sigstore.models import Bundle, InvalidBundle, TrustedRoot
        from sigstore.verify import Verifier, policy
    except ImportError:
        return "checking its sigstore bundle takes `pip install sigstore`"
    identity, issuer = trusted.who
    try:
        if trusted.root is None:
            verifier = Verifier.production(
                offline=True
            )  # the roots that come with the package, or newer ones it cached
        else:
            verifier = Verifier(trusted_root=TrustedRoot.from_file(str(trusted.root)))
    except (ValueError, Error) as error:
        return f"the roots in {trusted.root or 'the sigstore package'} cannot be read: {_line(error)}"
    try:
        verifier.verify_artifact(metadata, Bundle.from_json(bundle), policy.Identity(identity=identity, issuer=issuer))
    except (ValueError, InvalidBundle) as error:
        return f"its sigstore bundle cannot be read: {_line(error)}"
    except (VerificationError, Error) as error:
        return f"its sigstore bundle does not verify for {identity}: {_line(error)}"
    return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _decoded(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return None
