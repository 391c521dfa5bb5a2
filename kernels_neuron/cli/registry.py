"""`kernels-neuron registry`: serve a folder as a Hub, list it, check it, give out tokens."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kernels_neuron.errors import UsageError

from .output import print_json, say, table

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="A Hub-compatible server over a folder."
)

Root = Annotated[Path, typer.Option("--root", help="The registry's folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Scopes = Annotated[list[str] | None, typer.Option(metavar="SCOPE", help="Where: OWNER, OWNER/NAME or '*'.")]


@app.command()
def serve(
    root: Root = Path("registry"),
    port: Annotated[int, typer.Option(help="The port; 0 picks a free one.", min=0, max=65535)] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    untrusted: Annotated[list[str] | None, typer.Option(help="An owner clients must not trust unasked.")] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="One line per request on stderr.")] = False,
    rate: Annotated[float, typer.Option(help="Requests a second for each caller; 0 is no limit.", min=0)] = 0,
    max_commit_mb: Annotated[int, typer.Option(help="The largest commit in MiB.", min=1)] = 512,
    max_mb: Annotated[int, typer.Option(help="The largest registry in MiB; 0 is no limit.", min=0)] = 0,
) -> None:
    """Serve a folder as a Hub until interrupted; prints its URL. The first time also a token.

    \b
    Example:
      kernels-neuron registry serve --root registry --port 8080
    """
    from kernels_neuron.hub.serving import LOOPBACK, Settings
    from kernels_neuron.hub.serving import serve as serve_registry

    if host != LOOPBACK:
        say(f"note: {host} may be reachable from other machines, and tokens travel unencrypted: put TLS in front")
    settings = Settings(
        untrusted=frozenset(untrusted or ()),
        access_log=access_log,
        requests_per_second=rate,
        max_commit_bytes=max_commit_mb * 2**20,
        max_registry_bytes=max_mb * 2**20,
    )
    with suppress(KeyboardInterrupt):
        serve_registry(root, host=host, port=port, settings=settings, on_ready=_ready)


@app.command(name="list")
def list_(root: Root = Path("registry"), json: Json = False) -> None:
    """List what a registry's folder holds: repos, versions, variants.

    \b
    Example:
      kernels-neuron registry list --root registry
    """
    from kernels_neuron.hub.storage.contents import holdings
    from kernels_neuron.hub.store import Store

    rows = [asdict(row) for row in holdings(Store.existing(root))]
    if json:
        print_json(rows)
        return
    shown = [{**row, "commit": row["commit"][:10], "bytes": row["size"]} for row in rows]
    table(("repo_id", "branch", "variants", "files", "bytes", "commit", "date", "private"), shown)


@app.command()
def verify(root: Root = Path("registry"), json: Json = False) -> None:
    """Read and hash everything a registry's folder holds; exits 1 and lists what is damaged or missing.

    \b
    Example:
      kernels-neuron registry verify --root registry
    """
    from kernels_neuron.hub.storage.damage import find_damage
    from kernels_neuron.hub.store import Store

    store = Store.existing(root)
    damage = find_damage(store)
    if json:
        print_json({"repos": len(store.ids()), "ok": not damage, "damage": damage})
    else:
        for line in damage:
            print(line)
        print(f"{len(store.ids())} repos read, {len(damage)} things damaged or missing")
    if damage:
        raise typer.Exit(1)


@app.command()
def gc(
    root: Root = Path("registry"),
    grace: Annotated[float, typer.Option(help="Keep what is younger than this many hours.", min=0)] = 1.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, remove nothing.")] = False,
    json: Json = False,
) -> None:
    """Remove contents that no commit names, such as those of deleted repos. May run beside a server.

    \b
    Example:
      kernels-neuron registry gc --root registry --dry-run
    """
    from kernels_neuron.hub.storage.collect import collect
    from kernels_neuron.hub.store import Store

    done = collect(Store.existing(root), grace_seconds=grace * 3600, dry_run=dry_run)
    if json:
        print_json(asdict(done))
        return
    verb = "would be removed" if dry_run else "removed"
    print(f"{done.blobs} contents {verb}, {done.size} bytes; {done.young} kept for being young")


@app.command()
def token(
    user: Annotated[str, typer.Argument(help="Whose token it is; shown as the author of commits.")],
    root: Root = Path("registry"),
    read: Scopes = None,
    write: Scopes = None,
    admin: Scopes = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Forget the user's token.")] = False,
) -> None:
    """Make a token and print it, this once: the registry keeps its hash only.

    --read: sees private repos; --write: also creates repos and publishes; --admin: also deletes and renames. Each takes
    an owner, one repo as OWNER/NAME, or '*' for all, and may be repeated.

    \b
    Example:
      kernels-neuron registry token ci --write org --read lab/neuron-gemm
    """
    from kernels_neuron.hub.store import Store, now

    tokens = Store.existing(root).tokens
    if revoke:
        if not tokens.revoke(user):
            raise UsageError(f"there is no token for {user!r}")
        return
    given = {"read": read, "write": write, "admin": admin}
    grants = {scope: role for role, scopes in given.items() for scope in scopes or ()}
    if not grants:
        raise UsageError("a token takes at least one right", hint="pass --read, --write or --admin with a scope")
    print(tokens.add(user, grants, now()))


@app.command(name="tokens")
def tokens_(root: Root = Path("registry"), json: Json = False) -> None:
    """List who has a token, and what it may where.

    \b
    Example:
      kernels-neuron registry tokens --root registry
    """
    from kernels_neuron.hub.store import Store

    known = Store.existing(root).tokens.all()
    if json:
        print_json([{"user": token.user, "grants": token.grants, "created": token.created} for token in known])
        return
    rows = [(token.user, scope, role, token.created) for token in known for scope, role in token.grants.items()]
    table(("user", "scope", "role", "created"), rows)


def _ready(url: str, first_token: str | None) -> None:
    print(url, flush=True)
    if first_token:
        say(f"a token that may do everything, shown this once: {first_token}")
        say("clients take it from HF_TOKEN and the URL from HF_ENDPOINT")
