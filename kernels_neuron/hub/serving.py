"""Running the registry: in this process until told to stop, or in a thread for as long as a `with` block lasts."""

import fcntl
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernels_neuron.errors import HubError

from .storage.tokens import EVERYWHERE, Token, Tokens
from .store import Store, now

if TYPE_CHECKING:
    import uvicorn

LOOPBACK = "127.0.0.1"
_START_SECONDS = 30.0


@dataclass(frozen=True)
class RunningServer:
    """A registry that answers at `url`; `token` may do everything and is known to this server only."""

    url: str
    token: str
    store: Store


@dataclass(frozen=True)
class Settings:
    """How a registry is served; see handlers/call.Policy for the limits, of which 0 is none."""

    untrusted: frozenset[str] = frozenset()
    access_log: bool = False
    requests_per_second: float = 0.0
    max_commit_bytes: int = 512 * 2**20
    max_registry_bytes: int = 0


@contextmanager
def run_server(
    root: Path,
    *,
    port: int = 0,
    user: str = "local",
    untrusted: frozenset[str] = frozenset(),
    settings: Settings | None = None,
) -> Iterator[RunningServer]:
    """Serve the registry in `root` on loopback from a thread; port 0 picks a free one. Stopped when the block ends."""
    store = Store(root)
    with _alone(store):
        tokens = _PlusOne(store.tokens)
        token = tokens.add(user, {EVERYWHERE: "admin"}, now(), keep=False)
        with _bound(LOOPBACK, port) as sock:
            server = _uvicorn(store, settings or Settings(untrusted=untrusted), tokens)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name="registry", daemon=True)
            thread.start()
            try:
                _wait_until_started(server, thread)
                yield RunningServer(_url(sock), token, store)
            finally:
                server.should_exit = True
                thread.join()
                store.downloads.flush()


def serve(
    root: Path,
    *,
    host: str = LOOPBACK,
    port: int = 8080,
    settings: Settings | None = None,
    on_ready: Callable[[str, str | None], None] = lambda url, token: None,
) -> None:
    """Serve the registry in `root` until interrupted. on_ready gets the URL, and a first token where there was none."""
    store = Store(root)
    settings = settings or Settings()
    with _alone(store), _bound(host, port) as sock:
        first = None if store.tokens.all() else store.tokens.add("admin", {EVERYWHERE: "admin"}, now())
        server = _uvicorn(store, settings, store.tokens)
        if settings.access_log:
            log = logging.getLogger("kernels_neuron.registry.access")
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            log.addHandler(handler)
            log.setLevel(logging.INFO)
        on_ready(_url(sock), first)
        try:
            server.run(sockets=[sock])
        finally:
            store.downloads.flush()


class _PlusOne(Tokens):
    """The tokens of a store, and those added here, which die with the process."""

    def __init__(self, kept: Tokens) -> None:
        super().__init__()
        self._kept = kept

    def all(self) -> list[Token]:
        """The kept tokens and the passing ones."""
        return [*self._kept.all(), *super().all()]


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    # recovery removes what is half-written, so nobody else may be writing
    path = store.root / "serve.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HubError(
                f"the registry in {store.root} is being served already",
                hint="use that server's URL, or stop it first",
            ) from None
        store.recover()
        yield
    finally:
        os.close(handle)


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only where the protocol is named: without it each answer takes 40 ms
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(1024)  # from here on a client waits instead of being refused
        except (OSError, OverflowError) as error:
            raise HubError(
                f"cannot listen on {host} port {port}: {error}", hint="choose another --port, or 0 for a free one"
            ) from error
        yield sock


def _uvicorn(store: Store, settings: Settings, tokens: Tokens) -> "uvicorn.Server":
    try:
        import uvicorn

        from .handlers.call import Policy
        from .limits import RateLimit
        from .server import make_app
    except ImportError as error:
        raise HubError(f"the registry needs {error.name}", hint="pip install 'kernels-neuron[registry]'") from error
    policy = Policy(
        tokens,
        settings.untrusted,
        max_commit_bytes=settings.max_commit_bytes,
        max_registry_bytes=settings.max_registry_bytes,
        rate=RateLimit(settings.requests_per_second),
    )
    app = make_app(store, policy=policy)
    # clients drop an idle connection after 5 s, and so does uvicorn: under load one of the two is late, and a request
    # meets a reset. The server has to be the more patient
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=65,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


def _wait_until_started(server: "uvicorn.Server", thread: threading.Thread) -> None:
    pause = threading.Event()
    for _ in range(int(_START_SECONDS / 0.01)):
        if server.started:
            return
        if not thread.is_alive():
            break
        pause.wait(0.01)
    raise HubError("the registry did not start", hint="run kernels-neuron registry serve to see why")


def _url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
