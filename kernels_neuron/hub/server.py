"""The registry as an ASGI app: the routes of a Hugging Face Hub that kernel clients use, over one store."""

import errno
import io
import logging
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO
from urllib.parse import parse_qs, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kernels_neuron.errors import HubError

from .handlers import accounts, commits, files, refs, repos, web
from .handlers.call import Call, Denied, Policy, refusal
from .storage.tokens import Token, Tokens
from .store import Store

_ACCESS = logging.getLogger("kernels_neuron.registry.access")
Handler = Callable[[Call], Response]
_HOST = re.compile(r"[A-Za-z0-9._-]+(:\d+)?|\[[0-9a-fA-F:.]+\](:\d+)?")
_SPOOL_BYTES = 2**20
_SMALL_BODY_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Route:
    """A method, a path whose {names} match one segment each and {path...} the rest, and the role it takes.

    Without a role it is for everybody who may see the repo of the path. Where a role is given and the repo is named in
    the body, the handler checks it.
    """

    method: str
    pattern: str
    handler: Handler
    role: str | None = None

    def match(self, method: str, segments: list[str]) -> dict[str, str] | None:
        """The values of the {names}, or None. `segments` are still encoded: a revision may hold an encoded '/'."""
        if method != self.method:
            return None
        wanted = self.pattern[1:].split("/")
        open_ended = wanted[-1] == "{path...}"
        if len(segments) < len(wanted) if open_ended else len(segments) != len(wanted):
            return None
        found: dict[str, str] = {}
        for want, segment in zip(wanted, segments, strict=False):
            if want == "{path...}":
                break
            name = want[1:-1] if want.startswith("{") else None
            if name:
                found[name] = _decoded(segment)
            elif want != segment:
                return None
        if open_ended:
            found["path"] = "/".join(_decoded(segment) for segment in segments[len(wanted) - 1 :])
        return found


def _repo_reads(kind: str) -> list[Route]:
    at = f"/api/{kind}/{{owner}}/{{name}}"
    return [
        Route("GET", f"/api/{kind}", repos.index),
        Route("GET", at, repos.info),
        Route("GET", f"{at}/revision/{{rev}}", repos.revision),
        Route("GET", f"{at}/refs", refs.index),
        Route("GET", f"{at}/tree/{{rev}}", files.tree),
        Route("GET", f"{at}/tree/{{rev}}/{{path...}}", files.tree),
        Route("POST", f"{at}/paths-info/{{rev}}", files.paths_info),
        Route("GET", f"{at}/commits/{{rev}}", files.commits),
    ]


_AT = "/api/kernels/{owner}/{name}"
# `kernels benchmark` and a few others ask for a model: every kernel can be read under the model routes too
ROUTES = [
    Route("GET", "/kernels/{owner}/{name}/resolve/{rev}/{path...}", files.resolve),
    Route("GET", "/{owner}/{name}/resolve/{rev}/{path...}", files.resolve),
    *_repo_reads("kernels"),
    *_repo_reads("models"),
    Route("GET", "/api/whoami-v2", accounts.whoami),
    Route("GET", "/api/organizations/{owner}/overview", accounts.organization),
    Route("GET", "/api/users/{owner}/overview", accounts.user),
    Route("GET", "/api/agent-harnesses", accounts.agent_harnesses),
    Route("POST", "/api/validate-yaml", accounts.validate_yaml),
    Route("GET", "/", web.home),
    Route("GET", "/kernels/{owner}/{name}", web.kernel),
    Route("GET", "/health", accounts.health),
    Route("GET", "/metrics", accounts.metrics),
    Route("POST", "/api/repos/create", repos.create, "write"),
    Route("DELETE", "/api/repos/delete", repos.delete, "admin"),
    Route("POST", "/api/repos/move", repos.move, "admin"),
    Route("POST", f"{_AT}/branch/{{rev}}", refs.create_branch, "write"),
    Route("DELETE", f"{_AT}/branch/{{rev}}", refs.delete_branch, "write"),
    Route("POST", f"{_AT}/tag/{{rev}}", refs.create_tag, "write"),
    Route("DELETE", f"{_AT}/tag/{{rev}}", refs.delete_tag, "write"),
    Route("POST", f"{_AT}/preupload/{{rev}}", commits.preupload, "write"),
    Route("POST", f"{_AT}/commit/{{rev}}", commits.commit, "write"),
    Route("GET", f"{_AT}/xet-write-token/{{rev}}", commits.no_xet),
    Route("GET", f"{_AT}/xet-read-token/{{rev}}", commits.no_xet),
]


def make_app(store: Store, *, policy: Policy | None = None) -> ASGIApp:
    """The registry over `store`. Without a policy: its own tokens write, everybody reads what is not private."""
    policy = policy or Policy(store.tokens)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "serving.py asks uvicorn for nothing else"
        response = await _Exchange(Request(scope, receive), store, policy).answer()
        await response(scope, receive, send)

    return app


class _Exchange:
    """One request on its way to an answer: what is known of it so far, for the log and the counters."""

    def __init__(self, request: Request, store: Store, policy: Policy) -> None:
        self.request, self.store, self.policy = request, store, policy
        self.caller: Token | None = None
        self.pattern = "none"

    async def answer(self) -> Response:
        """The answer, counted and logged; an error becomes one that clients understand."""
        started = time.perf_counter()
        try:
            response = await self._handled()
        except HubError as error:
            response = refusal(error, anonymous=self.caller is None)
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody is there to read it
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # 507 and not 500: clients would send the whole upload again five times
            response = JSONResponse({"error": "the registry's disk is full"}, 507)
        seconds = time.perf_counter() - started
        self.policy.metrics.saw(self.request.method, self.pattern, response.status_code, seconds)
        self._log(response, seconds)
        return response

    async def _handled(self) -> Response:
        authorization = self.request.headers.get("authorization")
        if authorization:
            # wrong tokens are counted, or somebody could try them as fast as the line allows
            self._require_pace(self._address(), take=False)
            try:
                self.caller = await run_in_threadpool(_caller, authorization, self.policy.tokens)
            except Denied:
                self._require_pace(self._address())
                raise
        self._require_pace(f"user {self.caller.user}" if self.caller else self._address())
        route, params = _route(self.request)
        self.pattern = route.pattern
        call = _call(self.request, self.store, self.policy, params, self.caller)
        if route.role:  # before the body is read
            await run_in_threadpool(_authorize, call, route.role)
        if self.request.method in ("GET", "HEAD"):
            return await run_in_threadpool(route.handler, call)
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as body:
            is_commit = route.handler is commits.commit
            limit = self.policy.max_commit_bytes if is_commit else _SMALL_BODY_BYTES
            size = await _read_body(self.request, body, limit)
            return await run_in_threadpool(route.handler, replace(call, body=body, size=size))

    def _require_pace(self, who: str, *, take: bool = True) -> None:
        wait = self.policy.rate.wait_seconds(who, take=take)
        if wait:
            raise Denied(429, f"too many requests: at most {self.policy.rate.rate:g} a second", retry_after=wait)

    def _address(self) -> str:
        return self.request.client.host if self.request.client else "unknown"

    def _log(self, response: Response, seconds: float) -> None:
        if not _ACCESS.isEnabledFor(logging.INFO):
            return
        user = self.caller.user if self.caller else "-"
        path = (self.request.scope.get("raw_path") or b"").decode("latin-1")
        size = response.headers.get("content-length", "-")
        asked = f"{self.request.method} {''.join(char if char.isprintable() else '?' for char in path)}"
        _ACCESS.info('%s %s "%s" %d %s %.1fms', self._address(), user, asked, response.status_code, size, seconds * 1e3)


def _route(request: Request) -> tuple[Route, dict[str, str]]:
    raw = request.scope.get("raw_path") or request.url.path.encode()
    segments = raw.decode("latin-1").removeprefix("/").rstrip("/").split("/")
    method = "GET" if request.method == "HEAD" else request.method
    for route in ROUTES:
        params = route.match(method, segments)
        if params is not None:
            return route, params
    message = f"this registry has no {request.method} {request.url.path}"
    if segments[0] == "api" and segments[1:2] in (["models"], ["datasets"], ["spaces"]):
        message += "; it keeps repos of type kernel: pass repo_type='kernel'"
    raise Denied(404, message)


def _caller(authorization: str, tokens: Tokens) -> Token:
    scheme, _, token = authorization.partition(" ")
    known = tokens.find(token.strip()) if scheme.lower() == "bearer" else None
    if known is None:
        # any other message would make huggingface_hub say that the repo does not exist
        raise Denied(401, "Invalid credentials in Authorization header")
    return known


def _authorize(call: Call, role: str) -> None:
    if "name" in call.params:
        call.repo()
        call.require(role, call.repo_id)
    elif call.caller is None or not call.caller.may(role):
        who = f"the token of {call.caller.user} has none" if call.caller else "set HF_TOKEN"
        raise Denied(403, f"this takes a token with {role} rights: {who}")


async def _read_body(request: Request, body: IO[bytes], limit: int) -> int:
    """Put the request's body into `body` and return its size."""
    declared = request.headers.get("content-length", "0")
    size = 0
    if declared.isascii() and declared.isdigit() and len(declared) < 20 and int(declared) > limit:
        raise Denied(413, f"the body takes at most {limit} bytes, got {declared}")
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise Denied(413, f"the body takes at most {limit} bytes")
        body.write(chunk)
    body.seek(0)
    return size


def _call(request: Request, store: Store, policy: Policy, params: dict[str, str], caller: Token | None) -> Call:
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise Denied(400, "the Host header is not a host name")
    try:
        query = parse_qs(request.scope["query_string"].decode(), errors="strict", max_num_fields=1000)
    except ValueError:
        raise Denied(400, "the query string cannot be decoded") from None
    path = (request.scope.get("raw_path") or b"").decode("latin-1")
    endpoint, head = f"{request.scope['scheme']}://{host}", request.method == "HEAD"
    ranged = "range" in request.headers
    return Call(store, policy, endpoint, path, query, params, caller, io.BytesIO(), head=head, ranged=ranged)


def _decoded(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise Denied(400, "the path is not percent-encoded UTF-8") from None
