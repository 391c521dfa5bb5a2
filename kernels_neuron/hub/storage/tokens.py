"""Who may do what: tokens with a role, kept as SHA-256 hashes; the token itself is shown once and stored nowhere."""

import hashlib
import hmac
import json
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from .disk import locked, write_file
from .faults import AlreadyThere, Damaged, Refused

ROLES = ("read", "write")
_USER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Token:
    """One token's holder. A writer may read and write every repo; a reader may read the private ones too."""

    user: str
    role: str
    created: str
    sha256: str


class Tokens:
    """The tokens of one registry: those in its file, and those given for the life of this object."""

    def __init__(self, file: Path | None = None, *, scratch: Path | None = None) -> None:
        self._file = file
        self._scratch = scratch
        self._passing: list[Token] = []

    def all(self) -> list[Token]:
        """Every token's holder, the file's first."""
        return [*self._read(), *self._passing]

    def find(self, token: str) -> Token | None:
        """The holder of a token, or None."""
        sha256 = _hashed(token)
        return next((known for known in self.all() if hmac.compare_digest(known.sha256, sha256)), None)

    def add(self, user: str, role: str, created: str, *, keep: bool = True) -> str:
        """A new token for `user`, returned this once. keep=False: it dies with this object and touches no file."""
        if role not in ROLES:
            raise Refused(f"role is one of {', '.join(ROLES)}, got {role!r}")
        if not _USER.fullmatch(user):
            raise Refused(f"user name {user!r} is not made of letters, digits, '-' and '_'")
        secret = f"hf_{secrets.token_urlsafe(32)}"
        known = Token(user, role, created, _hashed(secret))
        if not keep or self._file is None:
            self._passing.append(known)
            return secret
        with locked(self._file.with_suffix(".lock")):
            kept = self._read()
            if any(token.user == user for token in kept):
                raise AlreadyThere(f"there is a token for {user!r} already", hint="revoke it first")
            self._write([*kept, known])
        return secret

    def revoke(self, user: str) -> bool:
        """Forget the kept token of `user`; False where there is none."""
        if self._file is None:
            return False
        with locked(self._file.with_suffix(".lock")):
            kept = self._read()
            left = [token for token in kept if token.user != user]
            if len(left) == len(kept):
                return False
            self._write(left)
        return True

    def _read(self) -> list[Token]:
        if self._file is None:
            return []
        try:
            return [Token(**entry) for entry in json.loads(self._file.read_bytes())]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError) as error:
            raise Damaged(f"{self._file} is not a list of tokens: {error}", hint="restore it or delete it") from error

    def _write(self, tokens: list[Token]) -> None:
        assert self._file is not None and self._scratch is not None
        text = json.dumps([asdict(token) for token in tokens], indent=2)
        write_file(self._file, text.encode(), scratch=self._scratch)


def _hashed(token: str) -> str:
    # the tokens are 256 random bits, so a plain hash is as good as a slow one
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
