"""List the cases of the vendor's attention block that pass nowhere, judged by the library's own numbers.

    python bench/conformance/unpassable.py /tmp/nki-library

A case is listed for the first reason that holds, and one that the library skips is not listed:

row-scales    row quantization: the test makes scales of shape [128, 3], kernel and reference want one per column
moving-limit  the kernel moves more columns in one nc_matmul than any chip before trn3 takes
fp8-rounding  the kernel multiplies in fp8 and the reference does not round to it: this rounding alone, all else exact,
              moves a value of V further than the test allows
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from commits import clone, commit
from run import ENVIRONMENT, ROOT
from suite import Suite

RESULTS = ROOT / "bench" / "results" / "conformance-unpassable.jsonl"
TESTS = Path("test/integration/nkilib/experimental/transformer/test_attention_block_tkg.py")
MOVING_COLUMNS = 512  # NKI ISA reference, nc_matmul, before trn3
FP8_LARGEST = 240.0  # float8_e4m3; the tests clip to it


def unpassable(suite: Suite) -> Iterator[dict[str, str]]:
    """{id, reason} of each such case, in the order of collection."""
    import test.integration.nkilib.experimental.transformer.test_attention_block_tkg as tests

    outside: dict[Any, int] = {}
    for case, item in suite.items.items():
        config = next(iter(item.callspec.params.values()))  # type: ignore[attr-defined]
        if tests.estimate_test_memory_bytes(config) > tests._MAX_MEMORY_BYTES:
            continue
        quantization = config.quantization_type.name
        if quantization == "ROW":
            yield {"id": case, "reason": "row-scales"}
        elif moving_columns(config) > MOVING_COLUMNS:
            yield {"id": case, "reason": "moving-limit"}
        elif quantization == "STATIC" and config.kv_quant:
            key = (config.batch, config.S_tkg, config.H, config.q_heads * config.KVDP, config.d_head)
            if key not in outside:
                outside[key] = _values_outside(tests, config)
            if outside[key]:
                yield {"id": case, "reason": "fp8-rounding"}


def moving_columns(config: Any) -> int:
    """Columns of the sum of squares over a head: all query heads of the at most 128 tokens that are done at once."""
    if not (config.qk_norm_pre_rope or config.qk_norm_post_rope):
        return 0
    return min(config.batch * config.S_tkg, 128) * config.q_heads


def _values_outside(tests: Any, config: Any) -> int:
    """How many values of V leave the test's tolerance because the input of the projection is rounded to fp8."""
    # V hangs on the first tensors that the generator draws, not on the cache, which may be short then
    small = replace(
        config, q_heads=config.q_heads * config.KVDP, KVDP=1, S_ctx=1024, S_max_ctx=1024, skip_output_projection=True
    )
    inputs = tests.generate_kernel_inputs(small)
    x, gamma, weight = (inputs[name].astype(np.float64) for name in ("X", "rmsnorm_X_gamma", "W_qkv"))
    scale = float(inputs["input_dequant_scale_qkv"][0, 0])
    x = x.reshape(-1, config.H)
    normed = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + inputs["rmsnorm_X_eps"]) * gamma
    scaled = np.clip(normed / scale, -FP8_LARGEST, FP8_LARGEST)
    factor = scale * float(inputs["weight_dequant_scale_qkv"][0, 2]) * float(inputs["v_scale"][0, 0])
    value = weight[:, -config.d_head :] * factor
    exact, rounded = (_fp8(operand @ value) for operand in (scaled, _fp8(scaled)))
    rtol, atol = tests._get_tolerances(config.kv_quant, config.quantization_type)
    return int(np.count_nonzero(np.abs(rounded - exact) > atol + rtol * FP8_LARGEST))


def _fp8(values: np.ndarray) -> np.ndarray:
    import ml_dtypes

    clipped = np.clip(values, -FP8_LARGEST, FP8_LARGEST).astype(np.float32)
    return clipped.astype(ml_dtypes.float8_e4m3).astype(np.float64)


def main() -> int:
    """Collect, judge, write one line of JSON a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=clone, help="a clone of aws-neuron/nki-library, branch 2.29_release")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})

    def visit(suite: Suite) -> None:
        theirs = commit(options.clone)
        lines = [json.dumps({**found, "theirs": theirs}) for found in unpassable(suite)]
        options.out.write_text("".join(f"{line}\n" for line in lines))

    return Suite(options.clone, visit).collect([str(options.clone / TESTS)])


if __name__ == "__main__":
    sys.exit(main())
