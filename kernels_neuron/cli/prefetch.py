"""`kernels-neuron prefetch`: make a later load without a network work."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .output import print_json, say, table


def run(
    repos: Annotated[list[str] | None, typer.Argument(metavar="[REPO]...", help="owner/name or owner/name@v1.")] = None,
    lock: Annotated[Path | None, typer.Option(help="A kernels.lock, or the project's folder.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Also from publishers the Hub does not vouch for.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Download kernels whole and check every digest, so that HF_HUB_OFFLINE=1 loads them, here and in `kernels`.

    With --lock: what it names, and the digests are pinned in kernels.pins.json beside it, or held to what is pinned.

    \b
    Example:
      kernels-neuron prefetch org/neuron-layernorm@v1 --lock kernels.lock
    """
    from kernels_neuron.loader.prefetch import prefetch

    rows = prefetch(repos or (), lock=lock, trust_remote_code=trust, step=say)
    if json:
        print_json([asdict(row) for row in rows])
        return
    shown = [(row.repo_id, row.revision, list(row.digests), row.files, row.size, row.pinned) for row in rows]
    table(("repo", "revision", "variants", "files", "bytes", "pinned"), shown)
