"""Run the vendor library's kernels against its own references in our simulator.

    git clone -b 2.29_release https://github.com/aws-neuron/nki-library /tmp/nki-library
    python bench/conformance/run.py /tmp/nki-library --sample 400 --seed 0
    python bench/conformance/summary.py /tmp/nki-library

Needs the test extras and `pip install allpairspy`. Nothing of the clone is changed or kept; rows are appended to the
results file, and a case that has one is not run again.
"""

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path

import cases
from commits import clone, commit
from outcome import MEMORY_BYTES
from runs import runs_of
from suite import Suite

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "conformance.jsonl"
CACHE = ROOT / "out" / "conformance"
# one thread, and the same cases in the same order in every process: their collection draws random cases and walks sets
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "NEURON_PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def main() -> int:
    """Parse, re-enter with the environment above, choose, collect, run."""
    options = _arguments()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})
    known = _known_cases(options.clone)
    if known.exists():
        # collecting all takes minutes, so only the files that hold a chosen case are collected
        todo = _choose(known.read_text().splitlines(), options)
        files = sorted({str(options.clone / case.split("::", 1)[0]) for case in todo})
        return Suite(options.clone, lambda suite: _run(suite, todo, options)).collect(files) if todo else 0
    tests = sorted(map(str, (options.clone / "test" / "integration").rglob("test_*.py")))
    files = [path for path in tests if not options.kernel or cases.kernel_of(path) in options.kernel]

    def visit(suite: Suite) -> None:
        if not suite.not_collected and files == tests:
            known.parent.mkdir(parents=True, exist_ok=True)
            known.write_text("".join(f"{case}\n" for case in suite.cases))
        _run(suite, _choose(suite.cases, options), options)

    return Suite(options.clone, visit).collect(files)


def _known_cases(folder: Path) -> Path:
    """Where the list of all cases of the clone's commit is kept between runs."""
    return CACHE / f"cases-{commit(folder)}.txt"


def _choose(everything: list[str], options: argparse.Namespace) -> list[str]:
    index, count = map(int, options.shard.split("/"))
    chosen = [
        case
        for case in everything
        if options.match in case and (not options.kernel or cases.kernel_of(case) in options.kernel)
    ]
    if options.sample:
        chosen = cases.sample(chosen, options.sample, options.seed)
    if options.only:
        named = set(options.only.read_text().splitlines())
        chosen = [case for case in chosen if case in named]
    chosen = cases.shard(chosen, index, count)
    if options.list:
        sys.stdout.write("".join(f"{case}\n" for case in chosen))
        return []
    rows = cases.read_rows(options.out)
    todo = cases.left_to_do(chosen, rows, again=options.again)
    sys.stderr.write(f"{len(everything)} cases, {len(chosen)} chosen, {len(todo)} to run\n")
    return cases.cheapest_first(todo, rows.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=clone, help="a clone of aws-neuron/nki-library, branch 2.29_release")
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only these, e.g. rope_hf")
    parser.add_argument("--match", default="", metavar="TEXT", help="only cases whose id contains TEXT")
    parser.add_argument("--only", type=Path, metavar="FILE", help="only cases that FILE lists, one a line")
    parser.add_argument("--sample", type=int, metavar="N", help="N cases, stratified by kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--again", metavar="CLASS", help="run failed cases again: an error class, or all")
    parser.add_argument(
        "--limit", type=float, default=120.0, metavar="SECONDS", help="processor time; a case that takes more fails"
    )
    parser.add_argument(
        "--memory", type=float, default=MEMORY_BYTES / 2**30, metavar="GIB", help="a case that needs more fails"
    )
    parser.add_argument("--list", action="store_true", help="print the cases and run none")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    return options


def _run(suite: Suite, todo: list[str], options: argparse.Namespace) -> None:
    begin = time.monotonic()
    # read now: the code of this process is what it has imported, whatever is committed while it runs
    provenance = {"ours": commit(ROOT, "kernels_neuron", "bench/conformance"), "theirs": commit(options.clone)}
    for number, case in enumerate(todo, 1):
        outcome = suite.run(case, options.limit, int(options.memory * 2**30))
        with options.out.open("a") as results:
            results.write(outcome.row(**provenance) + "\n")
        verdict = "ok" if outcome.ok else f"{outcome.error}: {outcome.message[:100]!r}"
        name = f"{outcome.kernel}::{case.rsplit('::', 1)[-1]}"
        sys.stderr.write(f"{number}/{len(todo)} {outcome.cpu_s:6.1f}s {name[:90]:90} {verdict}\n")
    wall_s = time.monotonic() - begin
    sys.stderr.write(f"{wall_s:.0f} s\n")
    how = {name: getattr(options, name) for name in ("sample", "seed", "shard", "again", "limit", "memory")}
    run = {"date": datetime.date.today().isoformat(), "cases": len(todo), "wall_s": round(wall_s), **how, **provenance}
    with runs_of(options.out).open("a") as runs:
        runs.write(json.dumps(run) + "\n")


if __name__ == "__main__":
    sys.exit(main())
