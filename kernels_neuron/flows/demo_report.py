"""What the demo found, as report.json holds it, and the limits it is held to."""

import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from .classify import Answer
from .digits import load_digits
from .layer_times import LayerTime

DTYPES = ("float32", "bfloat16")
SPEEDUP_DTYPE = "bfloat16"
SAMPLES = 24

# field of a module in report.json -> field of the loader's report: the error that has added up to this module, against
# the unswapped model in float32, and what its own kernel adds to the same input
ERRORS = {"rel_l2": "model_rel_l2", "own_rel_l2": "rel_l2"}

# what the demo has to reach; relative L2 is against the unswapped model in float32
LEAST_ACCURACY = 0.96
LEAST_FLOP_SHARE = 0.90
LOGITS_REL_L2 = {"float32": 2e-5, "bfloat16": 1e-2}
LAYER_REL_L2 = {"float32": 1e-5, "bfloat16": 1e-2}


def make_report(answers: Mapping[str, Answer], registry: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """What report.json holds: each dtype's answer, `registry` its url and repos, `run` its chip and batch."""
    digits = load_digits()
    labels = digits.test_labels.tolist()
    before = answers[DTYPES[0]].before
    dtypes = {dtype: _dtype_row(answer, labels) for dtype, answer in answers.items()}
    timed = answers[SPEEDUP_DTYPE].times
    report = {
        "images": len(labels),
        "accuracy_before": _accuracy(before, labels),
        "accuracy_after": min(row["accuracy"] for row in dtypes.values()),
        "predictions_equal": all(row["predictions_equal"] for row in dtypes.values()),
        "logits_rel_l2": {dtype: row["logits_rel_l2"] for dtype, row in dtypes.items()},
        "flop_share_swapped": min(row["flop_share_swapped"] for row in dtypes.values()),
        "instructions": sum(row["instructions"] for row in dtypes.values()),
        "dtypes": dtypes,
        "modules": _module_rows(answers),
        "speedup_dtype": SPEEDUP_DTYPE,
        "batch": run["batch"],
        "speedups": [time.row() for time in timed],
        "engines_us": _engines(timed),
        "samples": _samples(digits.test, labels, answers),
        "registry": dict(registry),
        "environment": {"chip": run["chip"], **_versions(answers)},
    }
    problems = problems_in(report)
    return {"ok": not problems, "problems": problems, **report}


def problems_in(report: Mapping[str, Any]) -> list[str]:
    """Every number of a report that is outside its limit, in words; empty when the demo has shown what it claims."""
    problems = []
    if not report["predictions_equal"]:
        problems.append("not all predictions are equal")
    if report["accuracy_after"] < LEAST_ACCURACY:
        problems.append(f"accuracy {report['accuracy_after']:.4f} is below {LEAST_ACCURACY}")
    if report["flop_share_swapped"] < LEAST_FLOP_SHARE:
        problems.append(f"{report['flop_share_swapped']:.1%} of the FLOPs ran in kernels, below {LEAST_FLOP_SHARE:.0%}")
    if not all(row["instructions"] for row in report["dtypes"].values()):
        problems.append("no instruction was simulated")
    for dtype, error in report["logits_rel_l2"].items():
        if not error <= LOGITS_REL_L2[dtype]:
            problems.append(f"{dtype}: logits are off by {error:.1e}, limit {LOGITS_REL_L2[dtype]:.0e}")
    for module in report["modules"]:
        problems += _layer_problems(module)
    return problems


def _layer_problems(module: Mapping[str, Any]) -> list[str]:
    problems = []
    # an activation inside a product is checked with the product
    own_output = module["outcome"] == "swapped" and module["kind"] != "activation"
    for dtype in DTYPES if own_output else ():
        error = module["rel_l2"].get(dtype)
        if error is None:
            problems.append(f"{dtype}: {module['path']} was not checked")
        elif not error <= LAYER_REL_L2[dtype]:
            problems.append(f"{dtype}: {module['path']} is off by {error:.1e}, limit {LAYER_REL_L2[dtype]:.0e}")
    return problems


def _dtype_row(answer: Answer, labels: Sequence[int]) -> dict[str, Any]:
    return {
        "accuracy": _accuracy(answer.after, labels),
        "predictions_equal": answer.before == answer.after,
        "logits_rel_l2": answer.logits_rel_l2,
        "flop_share_swapped": answer.flop_share_swapped,
        "instructions": answer.instructions,
    }


def _accuracy(predictions: Sequence[int], labels: Sequence[int]) -> float:
    return sum(p == label for p, label in zip(predictions, labels, strict=True)) / len(labels)


def _module_rows(answers: Mapping[str, Answer]) -> list[dict[str, Any]]:
    """One row a module; counts are over both dtypes, errors apart."""
    rows = []
    for same in zip(*(answer.modules for answer in answers.values()), strict=True):
        first = same[0]
        errors = {
            name: {dtype: row[source] for dtype, row in zip(answers, same, strict=True) if row[source] is not None}
            for name, source in ERRORS.items()
        }
        rows.append(
            {
                "path": first["path"],
                "kind": first["kind"],
                "outcome": first["outcome"],
                "reason": first["reason"] or None,
                "kernel": first["kernel"] or None,
                "kernel_id": first["kernel_id"] or None,
                "kernel_digest": first["kernel_digest"],
                "calls": sum(row["calls"] for row in same),
                "fallbacks": sum(sum(row["fallbacks"].values()) for row in same),
                **errors,
            }
        )
    return rows


def _engines(times: Sequence[LayerTime]) -> dict[str, float]:
    total: dict[str, float] = {}
    for time in times:
        for engine, busy_us in time.engines_us.items():
            total[engine] = total.get(engine, 0.0) + busy_us
    return total


def _samples(images: Any, labels: Sequence[int], answers: Mapping[str, Answer]) -> list[dict[str, Any]]:
    """The first images and, in their place at the end, the ones that the model gets wrong: they are worth a look."""
    before = answers[DTYPES[0]].before
    wrong = [i for i, label in enumerate(labels) if before[i] != label][: SAMPLES // 3]
    chosen = [i for i in range(len(labels)) if i not in wrong][: SAMPLES - len(wrong)] + wrong
    return [
        {
            "index": i,
            "label": labels[i],
            "before": before[i],
            "after": {dtype: answer.after[i] for dtype, answer in answers.items()},
            "pixels": images[i].tolist(),
        }
        for i in chosen
    ]


def _versions(answers: Mapping[str, Answer]) -> dict[str, str]:
    python = ".".join(str(number) for number in sys.version_info[:3])
    own = {"kernels-neuron": metadata.version("kernels-neuron"), "python": python}
    return own | answers[DTYPES[0]].versions
