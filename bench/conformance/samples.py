"""Run tutorials and documentation samples from clones, unmodified, in the simulator, against formulas of ours.

    python bench/conformance/samples.py CLONE... [--out bench/results/samples.jsonl]

CLONE is a checkout of aws-neuron/nki-samples or aws-neuron/aws-neuron-sdk. Every sample of sample_cases.py that a clone
has runs in a process of its own and becomes a line of JSON. The table counts what a clone has besides: code of the API
before 0.1 (neuronxcc), and fragments that are no whole kernel or come without inputs.
"""

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from outcome import Note, Outcome, in_own_process
from sample_cases import SAMPLES, Sample

from kernels_neuron.settings import Settings
from kernels_neuron.sim import shim
from kernels_neuron.sim.context import using

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "samples.jsonl"
LIMIT_S = 120
NKI = "0.6"  # the version whose documentation the samples are
_OLD = re.compile(r"^\s*(import|from) neuronxcc", re.MULTILINE)
_BLOCK = re.compile(r"^(?P<indent>[ \t]*)\.\. code-block::[ \t]*(python)?[ \t]*$", re.MULTILINE)


# ---- finding


def blocks(text: str) -> Iterator[str]:
    """The Python code blocks of an rst page, or of the rst in docstrings."""
    for start in _BLOCK.finditer(text):
        depth, lines = len(start["indent"].expandtabs()), []
        for line in text[start.end() :].splitlines()[1:]:
            if line.strip() and len(line.expandtabs()) - len(line.expandtabs().lstrip()) <= depth:
                break
            lines.append(line)
        code = textwrap.dedent("\n".join(line for line in lines if not re.match(r"\s+:\w+:", line)))
        yield code.rstrip().removesuffix('"""')  # which ends the docstring that the last block stands in


def defines(code: str, function: str) -> bool:
    """Whether the code has the function, parsed or not."""
    return re.search(rf"^def {re.escape(function)}\(", code, re.MULTILINE) is not None


def source_of(path: Path, sample: Sample) -> str | None:
    """The code that defines a sample: the file, or one block of the page; None where there is none."""
    text = path.read_text()
    if path.suffix == ".py" and defines(text, sample.function):
        return text
    found = [code for code in blocks(text) if defines(code, sample.function)]
    return found[sample.block] if sample.block < len(found) else None


# ---- running


def stand_ins() -> None:
    """torch_xla, as far as samples import it: its device is the CPU."""
    torch_xla = types.ModuleType("torch_xla")
    torch_xla.device = lambda: "cpu"  # type: ignore[attr-defined]
    sys.modules["torch_xla"] = torch_xla


def namespace_of(path: Path, code: str) -> dict[str, Any]:
    """What the code defines, with the imports that its page gives above it."""
    import nki
    import nki.isa
    import nki.language

    sys.path.insert(0, str(path.parent))
    given = {"nki": nki, "nl": nki.language, "nisa": nki.isa, "np": np, "input": None, "__name__": "sample"}
    module = types.ModuleType("sample")
    module.__dict__.update(given)
    exec(compile(code, str(path), "exec"), module.__dict__)  # the sample is what is measured
    return module.__dict__


def compare(outcome: Outcome, sample: Sample, got: Any, expected: Any) -> None:
    """Fill in whether every result is within atol + rtol * |expected|, element by element."""
    pairs = zip(_tuple(got), _tuple(expected), strict=True)
    for result, want in pairs:
        have, want = np.asarray(result, np.float64), np.asarray(want, np.float64)
        if have.shape != want.shape:
            outcome.error, outcome.message = "mismatch", f"shape {have.shape}, expected {want.shape}"
            return
        ratio = np.abs(have - want) / (sample.atol + sample.rtol * np.abs(want))
        outcome.errors.append({"element": float(ratio.max())})
        if not ratio.max() <= 1:
            outcome.error, outcome.message = "mismatch", f"{ratio.max():.3g} times the allowed error"
            return
    outcome.ok = True


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def run(path: Path, code: str, sample: Sample, outcome: Outcome) -> None:
    """Run one sample in this process and put what became of it into `outcome`."""
    shim.install()
    stand_ins()
    arguments = sample.inputs(np.random.default_rng(7))
    settings = Settings(nki=NKI, switches=sample.switches)
    with using(sample.arch, settings) as runs, contextlib.redirect_stdout(io.StringIO()):
        names = namespace_of(path, code)
        if sample.compared_by:
            pairs: list[tuple[Any, Any]] = []
            names[sample.compared_by] = lambda result, golden, *_: pairs.append((result, golden))
            names["setup_compiler_workdir"] = lambda *_: None
            names["device"] = "cpu"
            names[sample.function](*arguments)
            got, expected = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        else:
            expected = sample.reference(*arguments)
            kernel = names[sample.function]
            if not hasattr(kernel, "function"):
                kernel = names["nki"].jit(kernel) if path.suffix == ".rst" else kernel
            got = (kernel[sample.grid] if sample.grid > 1 else kernel)(*arguments)
            got = arguments[sample.copied] if sample.copied is not None else got
    outcome.instructions = sum(each.instructions for each in runs)
    compare(outcome, sample, got, expected)


def judged(path: Path, code: str, sample: Sample, label: str) -> Outcome:
    """The outcome of one sample in a process of its own."""

    def work(outcome: Outcome, _: Note) -> None:
        try:
            run(path, code, sample, outcome)
        except BaseException as error:  # noqa: BLE001  # whatever the sample raises is the result
            outcome.blame(error, "sample")

    return in_own_process(label, sample.function, work, LIMIT_S)


# ---- counting the rest


def inventory(clone: Path) -> dict[str, int]:
    """Kernels that no sample of ours covers: of the API before 0.1 by file, and fragments of pages by block."""
    counts = {"neuronxcc files": 0, "fragments": 0}
    for path in sorted(clone.rglob("*.py")):
        text = path.read_text(errors="replace")
        if _OLD.search(text) and "nki" in text:
            counts["neuronxcc files"] += 1
    for path in sorted([*clone.rglob("nki/**/*.rst"), *clone.rglob("nki/api/**/*.py")]):
        mine = [sample for sample in SAMPLES if str(path).endswith(sample.path)]
        for code in blocks(path.read_text(errors="replace")):
            if "nki.jit" in code and not any(defines(code, sample.function) for sample in mine):
                counts["fragments"] += 1
    return counts


def commit_of(clone: Path) -> str:
    """The short commit of a clone."""
    asked = ["git", "-C", str(clone), "log", "-1", "--format=%h %cs"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def rows_of(clone: Path, only: str = "") -> Iterator[dict[str, Any]]:
    """A row for every sample that the clone has."""
    for sample in SAMPLES:
        for path in sorted(clone.rglob(sample.path)):
            code = source_of(path, sample)
            if code is not None and _OLD.search(code):
                continue  # counted by inventory
            label = f"{path.relative_to(clone)}:{sample.function}" + (f"[{sample.block}]" if sample.block else "")
            if code is None or only not in label:
                continue
            outcome = judged(path, code, sample, label)
            # tutorials of the first API that nki.* had pass an argument that it ignored
            old = outcome.error == "call-signature" and "argument 'dtype'" in outcome.message
            broken = "passes dtype=, which is an error since NKI 0.2" if old else sample.broken
            row = json.loads(outcome.row(clone=clone.name, arch=sample.arch, broken=broken))
            yield row | {"switches": dict(sample.switches)}


# ---- the table


def verdict(row: dict[str, Any]) -> str:
    """One word and the reason."""
    if row.get("broken"):
        return f"fails, as it must: {row['broken']}" if not row["ok"] else "ran, and must not"
    if row["ok"]:
        switches = ", ".join(f"{name}={value}" for name, value in row["switches"].items())
        return f"passes with {switches}" if switches else "passes"
    message = row.get("message", "").splitlines() or [""]
    return f"{row['error']}: {message[0][:120]}".replace("|", "\\|")


def section(rows: Sequence[dict[str, Any]]) -> str:
    """The part of docs/conformance.md about samples."""
    facts = [row for row in rows if row["id"] == "facts"]
    ran = [row for row in rows if row["id"] != "facts"]
    meant = [row for row in ran if not row.get("broken")]
    passed = sum(row["ok"] for row in meant)
    lines = [
        "## Tutorials and documentation samples",
        "",
        f"{passed} of {len(meant)} samples that are meant to run give what our formula gives (element by element), and "
        f"{len(ran) - len(meant)} that cannot run as printed fail. "
        "`python bench/conformance/samples.py CLONE...` runs them again.",
        "",
        "| clone | commit | files of the API before 0.1, not run | fragments: no whole kernel, or no inputs |",
        "|---|---|---:|---:|",
        *[
            f"| {row['clone']} | {row['commit']} | {row['neuronxcc files']} | {row['fragments']} |"
            for row in sorted(facts, key=lambda row: row["clone"])
        ],
        "",
        "| clone | sample | chip | instructions | result |",
        "|---|---|---|---:|---|",
        *[
            f"| {row['clone']} | {row['id']} | {row['arch']} | {row.get('instructions', '')} | {verdict(row)} |"
            for row in ran
        ],
    ]
    return "\n".join(lines) + "\n"


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of an earlier run."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> int:
    """Run the samples of the clones given; exit 1 where one that is meant to run does not pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="samples whose id contains this")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = []
    for clone in given.clones:
        clone = clone.resolve()
        rows.append({"id": "facts", "clone": clone.name, "commit": commit_of(clone), **inventory(clone)})
        for row in rows_of(clone, given.only):
            print(f"{row['id']}  {verdict(row)}")
            rows.append(row)
    given.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return int(any(row["ok"] == bool(row["broken"]) for row in rows if row["id"] != "facts"))


if __name__ == "__main__":
    sys.exit(main())
