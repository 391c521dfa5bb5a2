"""One request as a handler sees it, and the answers that are not plain JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import parse_qs, urlencode

from starlette.responses import JSONResponse, Response

from kernels_neuron.errors import HubError

from ..limits import RateLimit
from ..metrics import Metrics
from ..storage.faults import AlreadyThere, Damaged, EntryMissing, Refused, RepoMissing, RevisionMissing, StaleParent
from ..storage.records import Repo
from ..storage.tokens import Token, Tokens
from ..store import Store

PAGE = 1000

# fault -> status, X-Error-Code. Nothing here is 5xx: clients would retry it for half a minute
_STATUS: dict[type[HubError], tuple[int, str | None]] = {
    RepoMissing: (404, "RepoNotFound"),
    RevisionMissing: (404, "RevisionNotFound"),
    EntryMissing: (404, "EntryNotFound"),
    AlreadyThere: (409, None),
    StaleParent: (412, None),
    Refused: (400, None),
    Damaged: (410, None),
}


class Denied(HubError):
    """The request ends here with this status."""

    def __init__(self, status: int, message: str, *, code: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


@dataclass(frozen=True)
class Policy:
    """What one server allows: its tokens, owners whose kernels clients must not trust unasked, how large, how often.

    max_commit_bytes    of the body of one commit, base64 included
    max_registry_bytes  of all contents together, above which commits are refused; 0 is no limit
    """

    tokens: Tokens
    untrusted: frozenset[str] = frozenset()
    max_commit_bytes: int = 512 * 2**20
    max_registry_bytes: int = 0
    rate: RateLimit = field(default_factory=RateLimit)
    metrics: Metrics = field(default_factory=Metrics)


@dataclass(frozen=True)
class Call:
    """A request whose route, caller and body are known. `params` are the decoded parts of the path."""

    store: Store
    policy: Policy
    endpoint: str
    path: str
    query: Mapping[str, list[str]]
    params: Mapping[str, str]
    caller: Token | None
    body: IO[bytes] = field(repr=False)
    size: int = 0  # of the body
    head: bool = False  # a HEAD, which is answered like a GET
    ranged: bool = False  # a part of the content is asked for

    @property
    def repo_id(self) -> str:
        """owner/name of the path."""
        return f"{self.params['owner']}/{self.params['name']}"

    @property
    def user(self) -> str:
        """The caller's name; only where the route asks for a writer."""
        assert self.caller is not None
        return self.caller.user

    def repo(self) -> Repo:
        """The repo of the path, if the caller may see it."""
        return self.known(self.repo_id)

    def known(self, repo_id: str) -> Repo:
        """A repo, if the caller may see it; one that is hidden is missing like one that is not there."""
        repo = self.store.repo(repo_id)
        if not self.may_see(repo_id, repo.private):
            raise RepoMissing(f"there is no repo {repo_id}")
        return repo

    def may_see(self, repo_id: str, private: bool) -> bool:
        """Whether the caller may know that the repo exists."""
        return not private or (self.caller is not None and self.caller.may("read", repo_id))

    def require(self, role: str, repo_id: str) -> None:
        """Raise unless the caller has this role for a repo, which need not exist. 403 and not 401, also for nobody.

        huggingface_hub reads a 401 on a repo's URL as "no such repo".
        """
        if self.caller is None:
            raise Denied(403, f"this takes a token with the role {role} for {repo_id}: set HF_TOKEN")
        if not self.caller.may(role, repo_id):
            raise Denied(403, f"the token of {self.caller.user} has no {role} rights to {repo_id}")

    def asked(self, name: str, default: str = "") -> str:
        """A query parameter's last value."""
        return self.query.get(name, [default])[-1]

    def json(self) -> dict[str, Any]:
        """The body as a JSON object."""
        return parse_object(self.body.read())

    def form(self) -> dict[str, list[str]]:
        """The body as form fields."""
        try:
            return parse_qs(self.body.read().decode(), keep_blank_values=True, errors="strict", max_num_fields=100_000)
        except ValueError as error:
            raise Refused(f"the body is not a form: {error}") from None

    def url(self, **query: str) -> str:
        """This request's URL with some query parameters replaced."""
        merged = {**{key: values[-1] for key, values in self.query.items()}, **query}
        return f"{self.endpoint}{self.path}?{urlencode(merged)}"


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object; Refused for anything else."""
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise Refused("the body is not JSON") from None
    if not isinstance(value, dict):
        raise Refused("the body is not a JSON object")
    return value


def text(record: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A string field of a JSON object. Without a default it has to be there."""
    value = record.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise Refused(f"the field {key!r} is a string, got {json.dumps(value)[:60]}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(f"the field {key!r} is not valid Unicode text") from None
    return value


def page(call: Call, rows: list[Any]) -> JSONResponse:
    """A long list, PAGE rows at a time; the Link header leads to the next ones."""
    cursor = call.asked("cursor", "0")
    limit = call.asked("limit", str(PAGE))
    if not all(value.isascii() and value.isdigit() and len(value) < 10 for value in (cursor, limit)):
        raise Refused(f"cursor and limit are numbers, got {cursor[:20]!r} and {limit[:20]!r}")
    start = int(cursor)
    end = start + max(1, min(int(limit), PAGE))
    headers = {"Link": f'<{call.url(cursor=str(end))}>; rel="next"'} if end < len(rows) else {}
    return JSONResponse(rows[start:end], headers=headers)


def _header_text(message: str) -> str:
    """One line of printable ASCII: what a caller sent may be quoted in it."""
    printable = "".join(char if char.isprintable() else " " for char in message)
    return " ".join(printable.split()).encode("ascii", "backslashreplace").decode()[:2000]


def refusal(error: HubError, *, anonymous: bool) -> Response:
    """The answer for an error, in the form that huggingface_hub turns into its own exceptions."""
    status, code = (error.status, error.code) if isinstance(error, Denied) else _STATUS.get(type(error), (400, None))
    if isinstance(error, RepoMissing) and anonymous:
        status = 401  # as the Hub: whether it is private or not there is not for everybody to know
    message = f"{error}; {error.hint}" if error.hint else str(error)
    message = message.encode("utf-8", "backslashreplace").decode()  # a lone surrogate would break the answer
    headers = {"X-Error-Message": _header_text(message)}
    if code:
        headers["X-Error-Code"] = code
    if isinstance(error, Denied) and error.retry_after:
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, EntryMissing):
        headers["X-Repo-Commit"] = error.commit
    return JSONResponse({"error": message}, status, headers=headers)
