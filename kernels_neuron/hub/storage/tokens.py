"""Who may do what where: tokens with roles, kept as SHA-256 hashes; the token itself is shown once, stored nowhere."""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .disk import locked, write_file
from .faults import AlreadyThere, Damaged, Refused
from .names import check_repo_id

ROLES = ("read", "write", "admin")  # each may what those before it may
EVERYWHERE = "*"
_USER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")


def may(grants: Mapping[str, str], role: str, repo_id: str | None = None) -> bool:
    """Whether grants (scope -> role) hold at least `role` for the repo owner/name; for None: for any repo at all.

    A scope is "owner/name" for one repo, "owner" for all of a namespace, "*" for all there are.
    """
    scopes = list(grants) if repo_id is None else [EVERYWHERE, repo_id.partition("/")[0], repo_id]
    return any(ROLES.index(grants[scope]) >= ROLES.index(role) for scope in scopes if scope in grants)


@dataclass(frozen=True)
class Token:
    """One token's holder, and the role it has in each scope.

    read   sees private repos
    write  creates repos; changes files, branches and tags
    admin  deletes and renames repos
    """

    user: str
    grants: Mapping[str, str]
    created: str
    sha256: str

    def may(self, role: str, repo_id: str | None = None) -> bool:
        """Whether the holder has at least this role for a repo, or for None anywhere."""
        return may(self.grants, role, repo_id)


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

    def add(self, user: str, grants: Mapping[str, str], created: str, *, keep: bool = True) -> str:
        """A new token for `user`, returned this once. keep=False: it dies with this object and touches no file."""
        _check(grants)
        if not _USER.fullmatch(user):
            raise Refused(f"user name {user!r} is not made of letters, digits, '-' and '_'")
        secret = f"hf_{secrets.token_urlsafe(32)}"
        known = Token(user, dict(grants), created, _hashed(secret))
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
            tokens = [Token(**entry) for entry in json.loads(self._file.read_bytes())]
            for token in tokens:
                _check(token.grants)
            return tokens
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, AttributeError, Refused) as error:
            raise Damaged(f"{self._file} is not a list of tokens: {error}", hint="restore it or delete it") from error

    def _write(self, tokens: list[Token]) -> None:
        assert self._file is not None and self._scratch is not None
        text = json.dumps([asdict(token) for token in tokens], indent=2)
        write_file(self._file, text.encode(), scratch=self._scratch)


def _check(grants: Mapping[str, str]) -> None:
    for scope, role in grants.items():
        if role not in ROLES:
            raise Refused(f"role is one of {', '.join(ROLES)}, got {role!r}")
        if scope != EVERYWHERE:
            check_repo_id(scope if "/" in scope else f"{scope}/any")
    if not grants:
        raise Refused("a token takes at least one right")


def _hashed(token: str) -> str:
    # the tokens are 256 random bits, so a plain hash is as good as a slow one
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
