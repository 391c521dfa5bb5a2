"""`kernels-neuron publish`: build/ to a registry or the Hub."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from kernels_neuron.flows.publish import Row, publish

from .output import print_json, say, table


def run(
    kernels: Annotated[list[str] | None, typer.Argument(help="Folders of nki_src/ or repo names; default all.")] = None,
    to: Annotated[str, typer.Option(help="A Hub's or registry's URL, or a registry's folder.")] = "registry",
    owner: Annotated[str | None, typer.Option(help="The namespace; default the token's own name.")] = None,
    private: Annotated[bool, typer.Option("--private", help="Make new repos private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, upload nothing.")] = False,
    sign: Annotated[Path | None, typer.Option(metavar="KEY", help="Sign with this Ed25519 key (PEM).")] = None,
    verified: Annotated[bool, typer.Option("--verified", help="These sources were verified already.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Build, check, lint, verify and publish kernels as Hub repos, and read them back. HF_TOKEN holds the token.

    Refuses a version that is published with more than this one offers. A second run changes nothing.

    \b
    Example:
      kernels-neuron publish --to http://127.0.0.1:8080 --owner me
    """
    if "://" in to:
        # whatever endpoint it is given, huggingface_hub has a question of its own for the one in the environment
        os.environ.setdefault("HF_ENDPOINT", to)
    options: dict[str, Any] = {"private": private, "dry_run": dry_run, "verified": verified, "sign": sign}
    rows = publish(kernels, to=to, owner=owner, step=say, **options)
    if json:
        print_json([_row(row) for row in rows])
        return
    columns = ("kernel", "repo", "branch", "new", "changed", "deleted", "card", "commit")
    table(columns, [_shown(row) for row in rows])
    for row in rows:
        for line in row.plan.api.widens:
            print(f"{row.kernel} offers more: {line}")
    if dry_run:
        print("dry run: nothing was uploaded")


def _row(row: Row) -> dict[str, Any]:
    plan = {key: value for key, value in asdict(row.plan).items() if key not in ("head", "main")}
    return {"kernel": row.kernel, **plan, "changed": not row.plan.is_empty, "commit": row.commit, "url": row.url}


def _shown(row: Row) -> dict[str, Any]:
    plan = row.plan
    counts = {"new": len(plan.adds), "changed": len(plan.changes), "deleted": len(plan.deletes)}
    card = "changed" if plan.card_changes else "same"
    commit = row.commit[:10] if row.commit else None
    return {"kernel": row.kernel, "repo": plan.repo_id, "branch": plan.branch, **counts, "card": card, "commit": commit}
