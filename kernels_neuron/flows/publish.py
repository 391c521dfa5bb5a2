"""Publishing kernels: rights first, then build and check, then one upload each, read back."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernels_neuron.errors import FileProblems
from kernels_neuron.hub.serving import run_server
from kernels_neuron.hub.upload import Plan, check_rights, connect, plan_upload, read_release, signed, upload
from kernels_neuron.manifest import PACKAGED, Manifest
from kernels_neuron.signing import public_text, read_private_key

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Step = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One kernel's way to its repo. `commit` is None in a dry run, `url` where the target was a folder."""

    kernel: str
    plan: Plan
    commit: str | None
    url: str | None


def publish(
    names: Iterable[str] | None = None,
    *,
    to: str | Path,
    owner: str | None = None,
    token: str | None = None,
    manifest: Manifest | None = None,
    private: bool = False,
    dry_run: bool = False,
    verified: bool = False,
    sign: Path | None = None,
    step: Step = lambda text: None,
) -> list[Row]:
    """Build, check, verify and upload kernels; returns a row for each.

    names    folders of nki_src/ or repo names; None: all of kernel.toml
    to       a Hub's or registry's URL, or a registry's folder, which is then served for as long as this takes
    owner    the namespace; None: the token's own name
    token    None: the one that Hugging Face tools would use
    dry_run  say what would change; build/ is written, the target is not
    verified the numeric check of these very sources was done elsewhere, and is left out here
    sign     a PEM file with an Ed25519 key, which signs the metadata.json of every variant

    The order: rights, build, check, version gate, lint, numeric check of what changes, then one upload each, read back.
    Nothing is uploaded unless all the kernels pass all of it.
    """
    manifest = manifest or Manifest.read()
    kernels = manifest.select(names)
    key = read_private_key(sign) if sign else None
    with _target(to, token, dry_run) as api:
        step(f"ask {api.endpoint} for the right to publish")
        owner = check_rights(api, owner, [kernel.repo for kernel in kernels])
        releases = [read_release(folder) for folder in _built(manifest, [kernel.name for kernel in kernels], step)]
        if key:
            step(f"sign with {public_text(key)}")
            releases = [signed(release, key) for release in releases]
        plans = [plan_upload(api, release, owner) for release in releases]
        for plan, release in zip(plans, releases, strict=True):
            plan.api.require_open(plan.repo_id, release.version)
        _require_linted(manifest, [kernel.name for kernel in kernels], step)
        if not dry_run and not verified:
            changed = [kernel.name for kernel, plan in zip(kernels, plans, strict=True) if plan.adds or plan.changes]
            _require_verified(manifest, changed, step)
        rows = []
        for kernel, release, plan in zip(kernels, releases, plans, strict=True):
            commit = None
            if not dry_run:
                done = upload(api, release, owner, private=private, step=_prefixed(step, kernel.name))
                plan, commit = done.plan, done.commit
            url = f"{api.endpoint}/kernels/{plan.repo_id}" if _is_url(to) else None
            rows.append(Row(kernel.name, plan, commit, url))
    return rows


def _require_linted(manifest: Manifest, names: list[str], step: Step) -> None:
    """Refuse kernels in which the linter finds an error, for any NKI version that their specs promise."""
    from .findings import lint_kernels

    step(f"lint {', '.join(names)}")
    errors = [str(each) for each in lint_kernels(manifest, names) if each.severity == "error"]
    if errors:
        raise FileProblems(manifest.sources, errors, hint="nothing was uploaded; see kernels-neuron lint")


def _require_verified(manifest: Manifest, names: list[str], step: Step) -> None:
    """Refuse kernels of which a case does not match its reference, on any of their chips, on one core and on two."""
    from kernels_neuron.measure.cases import tasks
    from kernels_neuron.measure.verify import verify

    from .local import built_variants

    variants = built_variants(manifest, names) if names else {}
    if not variants:
        return
    step(f"verify {', '.join(variants)}")
    todo = tasks(manifest.select(variants), variants, "test")
    missed = [row for row in verify(todo) if not row.ok]
    if missed:
        names = [f"{row.kernel}/{row.workload}/{row.dtype}/{row.arch}/lnc{row.lnc}" for row in missed]
        listed = [f"{name}: {row.problem or 'misses its tolerance'}" for name, row in zip(names, missed, strict=True)]
        raise FileProblems(manifest.sources, listed, hint="nothing was uploaded; see kernels-neuron verify")


def _built(manifest: Manifest, names: list[str], step: Step) -> list[Path]:
    from kernels_neuron.builder import build, check

    if manifest.path == PACKAGED:  # a wheel brings its kernels built and checked, in a folder that may be read-only
        return [manifest.build_root / kernel.repo for kernel in manifest.select(names)]
    step(f"build {', '.join(names)}")
    built = build(manifest, names)
    step(f"check {', '.join(names)}")
    problems = check(manifest, names)
    if problems:
        listed = [f"{problem.kernel}: {problem.where}: {problem.text}" for problem in problems]
        raise FileProblems(manifest.build_root, listed, hint="nothing was uploaded; correct these first")
    return [one.root for one in built]


@contextmanager
def _target(to: str | Path, token: str | None, dry_run: bool) -> Iterator["HfApi"]:
    if _is_url(to):
        yield connect(str(to), token)
        return
    with tempfile.TemporaryDirectory() as empty:
        # a dry run leaves no registry behind where there was none
        root = Path(empty) if dry_run and not (Path(to) / "format").exists() else Path(to)
        with run_server(root) as server:
            yield connect(server.url, server.token)


def _is_url(to: str | Path) -> bool:
    return "://" in str(to)


def _prefixed(step: Step, name: str) -> Step:
    return lambda text: step(f"{name}: {text}")
