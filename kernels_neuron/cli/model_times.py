"""What `kernels-neuron bench --model` prints: a model's layers, served and not, and the sums."""

from typing import TYPE_CHECKING, Any

from .output import print_json, print_unvalidated, table

if TYPE_CHECKING:
    from kernels_neuron.flows.model_bench import ModelTimes

KINDS_SHOWN = 6


def print_model(dtype: str, arch: str, lnc: int, model: str, json: bool) -> None:
    """Price a model and print it."""
    from kernels_neuron.flows.model_bench import bench_model

    found = bench_model(model, dtype, arch, lnc)
    if json:
        print_json(found.to_json())
    else:
        _print(found)


def _print(found: "ModelTimes") -> None:
    cores = f" on {found.lnc} cores" if found.lnc > 1 else ""
    print(f"{found.model}, {found.call}, {found.dtype} on {found.arch}{cores}; all times estimated, launches apart\n")
    rows: list[tuple[Any, ...]] = [
        (kind, kernel, len(layers), _us(layers, "body_us"), _us(layers, "baseline_us"), _ratio(layers))
        for (kind, kernel), layers in found.by_kind().items()
    ]
    rows.append(("not served", None, len(found.rest.ops), round(found.rest.us, 1), round(found.rest.us, 1), 1.0))
    low, high = found.speedup_range
    rows.append(("total", None, None, round(found.body_us, 1), round(found.baseline_us, 1), round(found.speedup, 3)))
    table(("layers", "kernel", "count", "body_us", "baseline_us", "speedup"), rows)
    print(f"\nspeedup {found.speedup:.2f} ({low:.2f} to {high:.2f}), {found.speedup_with_launch:.2f} with launches")
    if found.once_us:
        print(f"the first call takes {found.once_us:.1f} us more, to lay out the parameters")
    print_unvalidated([found.arch])
    print(f"{found.unserved_share:.1%} of the baseline is served by no kernel and counted alike on both sides")
    ops = sorted(found.rest.us_by_name.items(), key=lambda item: -item[1])
    if ops:
        print("  " + ", ".join(f"{name} {us:.1f} us" for name, us in ops[:KINDS_SHOWN]))
    for (name, why), count in found.kept.items():
        print(f"  kept: {count} {name}, {why}")
    if found.fallbacks:
        print(f"  {found.fallbacks} calls of swapped layers that no kernel served")


def _us(layers: list[Any], field: str) -> float:
    return round(sum(getattr(layer, field) for layer in layers), 1)


def _ratio(layers: list[Any]) -> float | None:
    body = sum(layer.body_us for layer in layers)
    return round(sum(layer.baseline_us for layer in layers) / body, 3) if body else None
