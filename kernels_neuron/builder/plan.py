"""What a build will write: pure, from a kernel, its spec and its sources to the bytes of every file."""

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels_neuron.api import API, to_bytes
from kernels_neuron.artifact import METADATA, Metadata, build_id, digest_of
from kernels_neuron.manifest import Kernel
from kernels_neuron.spec import Spec

from .card import card_text
from .closure import closure, imports_of, resolve
from .describe import describe
from .generate import init_text, limits_text, ops_text
from .rules import export_problems, parse, source_problems

# variant -> backend in its metadata, and the Python packages it needs at run time
BACKENDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "torch-neuron": ("neuron", ("nki",)),
    "torch-cpu": ("cpu", ()),
}


@dataclass(frozen=True)
class Plan:
    """One Hub repo to be: `files` maps paths in it to bytes, `metadata` variants to what their metadata.json says."""

    kernel: Kernel
    files: dict[str, bytes]
    metadata: dict[str, Metadata]

    @property
    def digest(self) -> str:
        """SHA-256 over the sources of all variants; neither the commit nor the card changes it."""
        sha = hashlib.sha256()
        for variant, metadata in sorted(self.metadata.items()):
            for path, digest in sorted(metadata.digest.items()):
                sha.update(f"{variant}/{path}\0{digest}\n".encode())
        return sha.hexdigest()


def read_trees(kernel: str, sources: Mapping[str, bytes], problems: list[str]) -> dict[str, ast.Module]:
    """The syntax trees of a kernel's Python files and of common/."""
    trees = {}
    for file, source in sources.items():
        if file.endswith(".py") and file.split("/")[0] in (kernel, "common"):
            tree = parse(file, source, problems)
            if tree is not None:
                trees[file] = tree
    return trees


def problems_of(kernel: Kernel, spec: Spec, sources: Mapping[str, bytes]) -> list[str]:
    """Why these sources cannot be shipped, all reasons at once; empty when they can."""
    problems: list[str] = []
    trees = read_trees(kernel.name, sources, problems)
    problems += export_problems(kernel.name, spec.entry, trees)
    if problems:
        return problems
    start = f"{kernel.name}/__init__.py"
    shipped = closure(start, trees)
    benchmark = f"{kernel.name}/benchmark.py"
    problems += source_problems(kernel.name, {file: trees[file] for file in shipped})
    for needed in ("ops.py", "reference.py", "kernel.py"):
        if f"{kernel.name}/{needed}" not in shipped:
            problems.append(f"{kernel.name}/{needed}: is missing or imported by nothing, so it would not ship")
    if benchmark in shipped:
        problems.append(f"{benchmark}: is imported by the kernel, and a benchmark ships outside the variant")
    if "torch-cpu" in kernel.variants:
        problems += _device_code_on_cpu(kernel.name, trees)
    return problems


def _device_code_on_cpu(kernel: str, trees: Mapping[str, ast.Module]) -> list[str]:
    """Imports that would run in the torch-cpu variant, which ships neither kernel.py nor nki."""
    problems = []
    for file in closure(f"{kernel}/__init__.py", trees, without=(f"{kernel}/kernel.py",)):
        always = ast.Module([node for node in trees[file].body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        for statement in imports_of(file, trees[file]):
            if not statement.level and statement.module.split(".")[0] == "nki":
                problems.append(
                    f"{file}:{statement.line}: {statement}: only kernel.py and what it imports may import nki"
                )
        for statement in imports_of(file, always):
            if statement.level and f"{kernel}/kernel.py" in resolve(statement, trees):
                text = "the torch-cpu variant has no kernel.py; import it where get_backend() is neuron"
                problems.append(f"{file}:{statement.line}: {statement}: {text}")
    return problems


def plan(
    kernel: Kernel,
    spec: Spec,
    sources: Mapping[str, bytes],
    provenance: dict[str, Any] | None = None,
    results: Sequence[Mapping[str, Any]] = (),
) -> Plan:
    """The build of one kernel whose sources have no problems (see problems_of).

    sources     path below nki_src -> bytes
    provenance  as metadata.json records it, or None outside version control
    results     rows of benchmarks, for the card
    """
    trees = read_trees(kernel.name, sources, [])
    benchmark = f"{kernel.name}/benchmark.py"
    files = {"README.md": card_text(kernel, spec, trees, provenance, benchmark in sources, results)}
    if benchmark in sources:
        files["benchmarks/benchmark.py"] = sources[benchmark]
    metadata = {}
    for variant in kernel.variants:
        inside, metadata[variant] = _variant(variant, kernel, spec, sources, trees, provenance)
        inside[METADATA] = metadata[variant].to_json().encode()
        files |= {f"build/{variant}/{path}": data for path, data in inside.items()}
    return Plan(kernel, dict(sorted(files.items())), metadata)


def _variant(
    variant: str,
    kernel: Kernel,
    spec: Spec,
    sources: Mapping[str, bytes],
    trees: Mapping[str, ast.Module],
    provenance: dict[str, Any] | None,
) -> tuple[dict[str, bytes], Metadata]:
    backend, depends = BACKENDS[variant]
    without = (f"{kernel.name}/kernel.py",) if backend == "cpu" else ()
    files = {path: sources[path] for path in closure(f"{kernel.name}/__init__.py", trees, without)}
    files["__init__.py"] = init_text(kernel, spec, trees)
    files["_limits.py"] = limits_text(spec)
    files[API] = to_bytes(describe(kernel.name, spec, trees, backend))
    # the id stands inside _ops.py, so it is made from an _ops.py without one
    id = build_id(kernel.repo, backend, {**files, "_ops.py": ops_text("", backend)})
    files["_ops.py"] = ops_text(id, backend)
    metadata = Metadata(
        name=kernel.repo,
        id=id,
        version=kernel.version,
        license=kernel.license,
        python_depends=depends,
        backend=backend,
        digest={path: digest_of(data) for path, data in files.items()},
        provenance=provenance,
        nki=_nki_block(kernel, spec),
    )
    return files, metadata


def _nki_block(kernel: Kernel, spec: Spec) -> dict[str, Any]:
    """What the loader asks of an artifact beyond what upstream records; the version gate reads api.json."""
    return {
        "kernel": kernel.name,
        "versions": list(spec.nki),
        "archs": list(spec.archs),
        "dtypes": list(spec.dtypes),
        "limits": {letter: list(ends) for letter, ends in spec.limits.items()},
        "tolerances": {dtype: str(tolerance.rule) for dtype, tolerance in spec.tolerances.items()},
        **({"loose": spec.loose} if spec.loose else {}),
    }
