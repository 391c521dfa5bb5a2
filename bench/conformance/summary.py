"""Write docs/conformance.md from the rows of the results file: counts per kernel, failing classes, error ratios."""

import argparse
import datetime
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cases
import samples
from commits import clone, commit, date_of
from runs import in_one_go, read_runs

ROOT = Path(__file__).parents[2]
UNPASSABLE = ROOT / "bench" / "results" / "conformance-unpassable.jsonl"
Row = Mapping[str, Any]
LIMIT_S = 120  # a case that takes more fails; run.py may be told to stop earlier, which decides nothing

# what a failing class means, where its name and messages do not say it all; the page lists every class it meets
EXPLAINED = {
    "timeout": "stopped after the limit of time a case",
    "mismatch": "the result is outside the vendor's tolerance, for reasons that lie in kernel and test; see below",
    "RuntimeError": "raised by the library's own reference, which meets the same scales",
    "AssertionError": "the kernel's own validation refuses what its test hands it: scales of shape [128, 3] for row "
    "quantization, which wants one per column",
    "not-refused": "a case that their suite expects the kernel to refuse ran",
    "not-simulated": "an instruction or feature the simulator refuses by name",
    "not-collected": "the test file does not import",
    "sbuf-capacity": "one instruction's operands exceed SBUF",
    "moving-limit": "the kernel moves 64 x 16 = 1,024 columns in one nc_matmul, NKI's limit is 512 before trn3; the "
    "library marks these configurations as work in progress",
    "race": "a kernel of the tests: both cores clear the whole output, then each stores its half, and nothing "
    "orders the two; the rule stands. In one case of attention_block_tkg one core loads all of the V cache while the "
    "other updates a row of it, after the only exchange of the two, so that nothing orders load and store",
    "memory": "one case needs more than the 20 GiB of address space that run.py gives it (12 in rows before December; "
    "on a host of 24), most of it for what the library draws in float64 before it rounds it, and compares in float64; "
    "`--again memory` on a larger host decides",
    "crashed": "the process of the case died",
}


# why a case passes nowhere: unpassable.py finds them
REASONS = {
    "row-scales": "row quantization: the test makes scales of shape [128, 3], kernel and reference want one per column "
    "of the weights; the kernel's own validation refuses them, or the reference raises",
    "moving-limit": "the kernel moves query heads x 128 = 1,024 or more columns in one nc_matmul; before trn3 NKI's "
    "limit, and a bank of PSUM, is 512",
    "fp8-rounding": "static quantization: the kernel multiplies in fp8, the reference does not round to it; computed "
    "exactly but for this rounding, some value of V already lies outside the test's tolerance",
}


def table_of_kernels(rows: Iterable[Row], totals: Mapping[str, int]) -> str:
    """One line a kernel: cases in the suite, run, passed, and the worst passing errors under both rules."""
    by_kernel: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_kernel[row["kernel"]].append(row)
    lines = [
        "| kernel | cases | run | passed | | failed as | error, vendor's rule | per element | instructions, median "
        "| processor s, median | most |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for kernel in sorted(by_kernel.keys() | totals.keys()):
        ran = by_kernel[kernel]
        passed = [row for row in ran if row["ok"]]
        share = f"{100 * len(passed) / len(ran):.0f} %" if ran else ""
        vendor, element = (_worst(passed, rule) for rule in ("vendor", "element"))
        counts = [row["instructions"] for row in ran if row.get("instructions")]
        median = f"{statistics.median(counts):,.0f}" if counts else ""
        classes = Counter(row["error"] for row in ran if not row["ok"]).most_common()
        failed = ", ".join(f"{error} {count}" for error, count in classes)
        seconds = [row["cpu_s"] for row in ran]
        times = f"{statistics.median(seconds):.1f} | {max(seconds):.0f}" if seconds else "|"
        lines.append(
            f"| {kernel} | {totals.get(kernel, len(ran))} | {len(ran)} | {len(passed)} | {share} | {failed} "
            f"| {vendor} | {element} | {median} | {times} |"
        )
    return "\n".join(lines)


def _worst(rows: Iterable[Row], rule: str) -> str:
    ratios = [error[rule] for row in rows for error in row.get("errors", ())]
    return f"{max(ratios):.2g}" if ratios else ""


def table_of_failures(rows: Iterable[Row]) -> str:
    """One line a failing class: count, kernels, how far they came, what it means or the commonest message."""
    by_class: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not row["ok"]:
            by_class[row["error"]].append(row)
    lines = ["| class | cases | kernels | during | inputs | what it is |", "|---|---:|---|---|---|---|"]
    for error, failed in sorted(by_class.items(), key=lambda item: (-len(item[1]), item[0])):
        kernels = Counter(row["kernel"] for row in failed)
        names = ", ".join(f"{kernel} {count}" for kernel, count in kernels.most_common())
        message = Counter(_first_line(row) for row in failed).most_common(1)[0][0]
        stages = Counter(row["stage"] for row in failed if row.get("stage")).most_common()
        during = ", ".join(f"{stage} {count}" for stage, count in stages)
        lines.append(
            f"| {error} | {len(failed)} | {names} | {during} | {_sizes(failed)} | {_explain(error, message)} |"
        )
    return "\n".join(lines) if len(lines) > 2 else "None."


def _sizes(rows: Iterable[Row]) -> str:
    """The least and the largest input of the rows that know theirs."""
    sizes = [row["input_bytes"] / 1e6 for row in rows if row.get("input_bytes")]
    return f"{min(sizes):,.0f} to {max(sizes):,.0f} MB" if sizes else ""


def _explain(error: str, message: str) -> str:
    meaning = EXPLAINED.get(error)
    example = f"e.g. `{message}`" if message else ""
    return "; ".join(part for part in (meaning, example) if part).replace("|", "\\|")


def _first_line(row: Row) -> str:
    lines = row.get("message", "").splitlines() or [""]
    return lines[0].replace("`", "'")[:160]


def page(
    rows: list[Row],
    totals: Mapping[str, int],
    drawn: Iterable[str],
    facts: Mapping[str, Any],
    unpassable: Mapping[str, str],
) -> str:
    """The whole of docs/conformance.md; `drawn` are the cases of the sample, `unpassable` names reasons by case."""
    eligible = [row for row in rows if row["error"] != "skipped"]
    ran = [row for row in eligible if is_decided(row)]
    chosen = set(drawn)
    sampled = [row for row in eligible if row["id"] in chosen]
    decided = [row for row in sampled if is_decided(row)]
    return TEMPLATE.format(
        sample=count_of(decided),
        sample_passable=count_of([row for row in decided if row["id"] not in unpassable]),
        passable=count_of([row for row in ran if row["id"] not in unpassable]),
        unpassable=len(unpassable),
        unpassable_drawn=len(chosen & unpassable.keys()),
        reasons=table_of_reasons(unpassable),
        ceiling=_ceiling(sum(totals.values()) or len(rows), len(rows) - len(eligible), len(unpassable)),
        undecided=sum(not is_decided(row) for row in sampled),
        missing=len(chosen - {row["id"] for row in rows}),
        stopped=table_of_stopped(eligible),
        drawn=len(chosen),
        everything=count_of(ran),
        total=sum(totals.values()) or len(rows),
        skipped=len(rows) - len(eligible),
        kernels=table_of_kernels(ran, totals),
        failures=table_of_failures(ran),
        commits=table_of_commits(rows, facts["dates"]),
        minutes=sum(row.get("cpu_s", row["wall_s"]) for row in ran) / 60,
        sample_minutes=sum(row["cpu_s"] for row in decided) / 60,
        spent=where_time_goes(ran),
        hours_left=_hours_left(decided, (sum(totals.values()) or len(rows)) - len(rows)),
        seconds=statistics.median([row["cpu_s"] for row in ran]) if ran else 0.0,
        **facts,
    )


def _hours_left(decided: Sequence[Row], cases: int) -> float:
    """How long `cases` more take if they take as long as those of the sample."""
    return cases * sum(row["cpu_s"] for row in decided) / max(1, len(decided)) / 3600


def _ceiling(total: int, skipped: int, unpassable: int) -> str:
    """The share of the cases which give a verdict that can pass at all."""
    asked = total - skipped
    return f"{asked - unpassable} of {asked}, {100 * (asked - unpassable) / asked:.1f} %"


def table_of_reasons(unpassable: Mapping[str, str]) -> str:
    """One line a reason why cases pass nowhere: how many, and what it means."""
    counts = Counter(unpassable.values())
    lines = ["| reason | cases | what it is |", "|---|---:|---|"]
    lines += [f"| {reason} | {counts[reason]} | {meaning} |" for reason, meaning in REASONS.items()]
    return "\n".join(lines)


def is_decided(row: Row) -> bool:
    """Whether the row is a verdict; a case that a run with a lower limit stopped may still pass."""
    return row["error"] != "timeout" or row.get("message") == f"stopped after {LIMIT_S} s"


def table_of_stopped(rows: Iterable[Row]) -> str:
    """Kernels of the cases that were stopped before the limit, with counts."""
    counts = Counter(row["kernel"] for row in rows if not is_decided(row)).most_common()
    return ", ".join(f"{kernel} {count}" for kernel, count in counts) or "none"


def where_time_goes(rows: Iterable[Row]) -> str:
    """Shares of the processor time of the rows that say how much of it was inputs and how much the simulator."""
    split = [row for row in rows if row.get("sim_cpu_s")]
    whole = sum(row["cpu_s"] for row in split) or 1.0
    inputs, simulator = (100 * sum(row.get(name, 0) for row in split) / whole for name in ("inputs_cpu_s", "sim_cpu_s"))
    rest = 100 - inputs - simulator
    return (
        f"{inputs:.0f} % in the library's generators of inputs, {simulator:.0f} % in the simulator, "
        f"{rest:.0f} % in the library's references and comparison"
    )


def count_of(ran: list[Row]) -> str:
    """`passed of ran cases pass`, the share, and between which shares the truth lies with 95 % confidence."""
    if not ran:
        return "no case has run"
    passed = sum(row["ok"] for row in ran)
    low, high = wilson(passed, len(ran))
    share = f"{100 * passed / len(ran):.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f} %"
    return f"{passed} of {len(ran)} cases pass ({share})"


def wilson(passed: int, ran: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a share of `passed` in `ran` independent draws; z = 1.96 is 95 %."""
    share, spread = passed / ran, z * z / ran
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / ran + spread / (4 * ran))
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)


def table_of_commits(rows: Iterable[Row], dates: Mapping[str, str]) -> str:
    """One line a commit of the simulator: its date, how many rows it made, how many of them passed. Oldest first."""
    by_commit: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_commit[row.get("ours", "unknown")].append(row)
    lines = ["| simulator commit | of | rows | passed |", "|---|---|---:|---:|"]
    for commit_id in sorted(by_commit, key=lambda name: (dates.get(name, ""), name)):
        made = by_commit[commit_id]
        date = dates.get(commit_id, "")[:16].replace("T", " ")
        lines.append(f"| {commit_id} | {date} | {len(made)} | {sum(row['ok'] for row in made)} |")
    return "\n".join(lines)


TEMPLATE = """# Conformance: the vendor's public kernels in the simulator

`bench/conformance/` runs the kernels of [aws-neuron/nki-library](https://github.com/aws-neuron/nki-library), branch
`2.29_release` (NKI 0.3), unmodified, from a clone outside this repository, on the simulated trn2, against the
library's own PyTorch references and under its own comparison. A case passes when the library's test passes: results
within its tolerance, and a refusal where the test asks for one. A case that takes more than 120 s of processor
time fails.

- Sample of {drawn}, stratified by kernel, seed {seed}:
  **{sample}**;
  without the {unpassable_drawn} that pass nowhere, {sample_passable}.
  {undecided} more were stopped early, when the run was limited to 20 s a case, and decide nothing yet; {missing} have
  not run; the others skip themselves.
- Every case run so far:
  **{everything}**,
  of {total} that the library calls small enough for a CPU; {skipped} more skip themselves (formats of trn3, more memory
  than a host has). Without those that pass nowhere, {passable}.
  Kernels whose cases are cheap are run first, so these shares are not drawn at random.
- What can pass at all: {ceiling} of the cases that do not skip themselves. The other {unpassable} pass nowhere, on no
  chip either, by the library's own numbers (`python bench/conformance/unpassable.py CLONE` finds them):

{reasons}

- What can pass on a host with 20 GiB a case is fewer: 92 cases of `attention_block_tkg` draw caches of half a billion
  values or more each, in float64, and 8 of `moe_block_tkg` draw weights of 16.9 GiB; of those that ran most had none.
  The library itself allows a test 20 GB.
- The aim is 95 % of all the cases. These numbers put it out of reach, whatever the simulator does, if what passes
  nowhere is counted as failing; most of the long cases have not run yet. What is missing is time,
  {hours_left:.0f} hours of processor time by the mean of the sample, and memory for the large ones.

{date}, library commit `{theirs}`, {minutes:.0f} minutes of processor time, {seconds:.1f} s the median case; the decided
cases of the sample took {sample_minutes:.0f} minutes of it.
{one_go}
Of the time, {spent}.
Written by `bench/conformance/summary.py` from `bench/results/{results}`, one line of JSON a case.

```
git clone -b 2.29_release https://github.com/aws-neuron/nki-library /tmp/nki-library
pip install allpairspy
python bench/conformance/run.py /tmp/nki-library --sample 400 --seed 0     # stratified by kernel; with --shard 1/2 and
                                                                           # 2/2 in two processes it takes half as long
python bench/conformance/run.py /tmp/nki-library --kernel rope_hf          # one kernel, all its cases
python bench/conformance/run.py /tmp/nki-library --shard 1/8               # a share of everything
python bench/conformance/summary.py /tmp/nki-library
```

Runs are resumable: a case that has a row is not run again unless `--again CLASS` (or `all`) asks for it. Continuous
integration has no clone: `tests/bench/test_conformance_clone.py` skips there and says so, and runs a handful of cases
where `KERNELS_NEURON_NKI_LIBRARY` names a clone. `tests/bench/test_conformance.py` tests the harness itself.

## Counts per kernel

The error columns hold the largest error of any passing case, divided by what is allowed: at most 1 is within the rule.
The vendor's rule allows every element `atol + rtol * max|reference|`; the per-element column asks the same tolerances
of each element by itself, `atol + rtol * |reference|`, which no case has to meet. Seconds are processor time,
the library's own input generators and references included.

{kernels}

## What fails, and why

`during` says how far the cases came: inputs being made by the library, the simulator, the library's reference.

{failures}

Stopped before the limit, so without a verdict (`--again timeout` runs them): {stopped}.

Every mismatch that was looked into is a decision that the kernel's rounding turns, not an error in a value:

- `moe_block_tkg`: a token goes to the four experts with the largest logits. The kernel rounds the normalized input to
  bfloat16, which moves a logit by up to 0.003; the reference keeps float32. Of 2,048 tokens three have a fourth and
  fifth expert less than 0.0007 apart and are given the other one; all other tokens are within 0.82 of the tolerance.
  In the second case it is one of 16 tokens, 0.00009 apart, and the others are within 0.85.
- `attention_block_tkg`, static quantization: the test draws a cache whose logits reach 170, so that the softmax picks
  one key. The kernel rounds a query to bfloat16 about eight times on its way, the reference never: 0.5 % of the query,
  0.6 of a logit. Where two keys are 1.8 apart, one head of eight, its cosine falls to 0.985; the others keep 0.99999.
  The case has 0.9899 where 0.99 is asked. The cases that break V are in the list of those that pass nowhere.

## What the library taught the simulator

A published kernel that runs on the chip must run here, or the rule that refused it is wrong. Found so, each with a
test:

- Live tiles of a rotary kernel take one and a half times a partition of SBUF: a 128-partition input beside four
  64-partition products. They fit side by side across partitions, so placement tries that before it gives up
  (`kernels_neuron/sim/pack.py`). Whether the vendor's compiler packs them or spills to HBM is not published.
- `.ap(offset=)` on a view counts from the view (switch `ap_view_offset`), and its partition step may be the view's.
- A pattern that leaves its allocation may be made, and is refused when it is used.
- A jitted kernel that another one calls is a part of it.
- `sendrecv` orders the HBM accesses of both cores before it (switch `sendrecv_orders`).
- `perf_mode` may be a name.
- A kernel may hold more than SBUF: output projections load all their weights first, up to three times what fits, from
  first write to last use. The vendor's guide says that its compiler spills to HBM then, and reports of refusals name
  one instruction whose operands are too much. The simulator refuses both unless told otherwise, so that nobody ships a
  spill without knowing; the cases here run with the switch `sbuf_overflow="spill"`.

## Which simulator made the rows

A row is as old as the commit that made it; what was changed later may have changed its verdict. Cases that failed are
run again after a fix (`--again CLASS`), cases that passed are not.

{commits}
"""


def main() -> int:
    """Read, count, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=clone, help="a clone whose cases run.py has listed")
    parser.add_argument("--sample", type=int, default=400, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results" / "conformance.jsonl")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "conformance.md")
    options = parser.parse_args()
    theirs = commit(options.clone)
    known = (ROOT / "out" / "conformance" / f"cases-{theirs}.txt").read_text().splitlines()
    found = cases.read_rows(options.results)
    rows = [found[case] for case in known if case in found]
    totals = Counter(map(cases.kernel_of, known))
    facts = {
        "theirs": theirs,
        "date": datetime.date.today().isoformat(),
        "results": options.results.name,
        "seed": options.seed,
        "one_go": in_one_go(read_runs(options.results), options.sample, options.seed),
        "dates": {name: date_of(ROOT, name) for name in {row.get("ours", "") for row in rows}},
    }
    listed = {case: row["reason"] for case, row in cases.read_rows(UNPASSABLE).items()}
    text = page(rows, totals, cases.sample(known, options.sample, options.seed), facts, listed)
    if samples.RESULTS.exists():
        text += f"\n{samples.section(samples.read(samples.RESULTS))}"
    options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
