"""Cases that several ranks run together, for collectives: the vendor's simulation of its tests runs none of them.

All ranks run side by side here, and their outputs go to the folders in which the library's validator looks for what
came from several devices, so that each rank is judged by its own reference.
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np

Run = Callable[[Any, int, str, list[dict[str, Any]]], list[Any]]  # (kernel, lnc, chip, inputs by rank) -> outputs


def install(run: Run, chips: dict[str, str]) -> None:
    """Make the library's orchestrator take cases of several ranks; `chips` translates its names of chips."""
    import test.utils.simulation_setup as simulation
    import test.utils.test_orchestrator as orchestrator
    from test.utils.common_dataclasses import PerRankLazyInputGenerator, normalize_golden_output

    alone, dump = simulation.run_simulator_inference, orchestrator.Orchestrator._dump_output_tensors

    def run_inference(case: Any) -> Any:
        given, ranks = case.kernel_input, range(case.inference_args.collective_ranks)
        of_rank = given.for_rank if isinstance(given, PerRankLazyInputGenerator) else None
        if of_rank is None and len(ranks) == 1:
            return alone(case)
        inputs = [_without_suffix(of_rank(rank) if of_rank else given or {}) for rank in ranks]
        chip = chips[case.compiler_input.platform_target.get_nc_gen()]
        outputs = run(case.kernel_func, case.compiler_input.logical_nc_config, chip, inputs)
        found = {}
        for rank, output in zip(ranks, outputs, strict=True):
            golden = normalize_golden_output(case.validation_args.golden_output, rank)
            values = output if isinstance(output, (tuple, list)) else [output]
            folder = f"output_worker_{rank}/" if len(ranks) > 1 else ""
            for (name, expected), value in zip(golden.items(), values, strict=True):
                found[folder + name] = np.asarray(value, dtype=expected.dtype)
        return found

    def dump_by_rank(self: Any, tensors: dict[str, np.ndarray]) -> Any:
        folder = os.path.join(self.fs_config.artifacts_output_directory_path, orchestrator.INF_ARTIFACT_DIR_NAME)
        for name in tensors:
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        return dump(self, tensors)

    simulation.run_simulator_inference = run_inference
    orchestrator.Orchestrator._dump_output_tensors = dump_by_rank


def positional(kernel: Callable[..., Any], inputs: dict[str, Any]) -> tuple[Any, ...]:
    """The keyword arguments of one rank in the order of the kernel's parameters, defaults filled in."""
    bound = inspect.signature(kernel).bind(**inputs)
    bound.apply_defaults()
    return bound.args


def _without_suffix(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name.removesuffix(".must_alias_input"): value for name, value in inputs.items()}
