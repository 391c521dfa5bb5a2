"""Which tutorials and documentation samples are run, on what inputs, against which formula of ours.

A path is the end of a file's path in the clone. The formulas are numpy's; nothing here is taken from the samples.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Arrays = tuple[Any, ...]


@dataclass(frozen=True)
class Sample:
    """One kernel of a file or page.

    inputs     arguments, made from a random generator
    reference  the same arguments to the expected outputs
    block      which of several definitions of that name on the page, from 0
    grid       physical cores
    copied     results are compared with what is left in this argument, for kernels that return nothing
    compared_by  the file's own function(result, golden), where `function` runs kernels and calls that on what they gave
    broken     why the sample cannot run as it is printed; then it must fail
    """

    path: str
    function: str
    inputs: Callable[[np.random.Generator], Arrays]
    reference: Callable[..., Any]
    block: int = 0
    arch: str = "trn2"
    grid: int = 1
    copied: int | None = None
    rtol: float = 2e-2
    atol: float = 1e-4
    switches: Mapping[str, object] = field(default_factory=dict)
    compared_by: str = ""
    broken: str = ""


def normal(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Callable[[np.random.Generator], Arrays]:
    """Arguments of these shapes with normal values."""
    return lambda rng: tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def product(left: np.ndarray, right: np.ndarray, *_: Any) -> np.ndarray:
    """left.T @ right in float32."""
    return left.astype(np.float32).T @ right.astype(np.float32)


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b."""
    return a + b


def exp(x: np.ndarray) -> np.ndarray:
    """e to the x, in float32."""
    return np.exp(x.astype(np.float32))


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the share of a standard normal below x."""
    return np.array([value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in x.reshape(-1)]).reshape(x.shape)


def state_space(delta: np.ndarray, u: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """y[t] = sum over states of c[t] * s[t], with s[t] = exp(delta[t] * a) * s[t - 1] + delta[t] * b[t] * u[t]."""
    state = np.zeros((*delta.shape[:2], a.shape[1]))
    out = np.empty(delta.shape)
    for t in range(delta.shape[2]):
        step = delta[:, :, t, None]
        state = np.exp(step * a) * state + step * b[:, None, :, t] * u[:, :, t, None]
        out[:, :, t] = (state * c[:, None, :, t]).sum(axis=-1)
    return out


def _state_space_inputs(rng: np.random.Generator) -> Arrays:
    batch, channels, states, length = 1, 256, 4, 512
    return (
        rng.uniform(0, 1, (batch, channels, length)).astype(np.float32),
        rng.standard_normal((batch, channels, length)).astype(np.float32),
        -rng.uniform(0, 1, (channels, states)).astype(np.float32),
        rng.standard_normal((batch, states, length)).astype(np.float32),
        rng.standard_normal((batch, states, length)).astype(np.float32),
    )


def _pooled(reduce: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def pool(x: np.ndarray, size: int) -> np.ndarray:
        c, h, w = x.shape
        return reduce(x.astype(np.float32).reshape(c, h // size, size, w // size, size), axis=(2, 4))

    return pool


def _turned(x: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return x.reshape(-1, *shape).transpose(0, 2, 1).reshape(x.shape)


def _images(rng: np.random.Generator) -> Arrays:
    return rng.standard_normal((2, 6, 6)).astype(np.float32), 2


def _rows(count: int, width: int, picked: int, columns: int = 1, dtype: Any = np.float32) -> Any:
    def make(rng: np.random.Generator) -> Arrays:
        indices = rng.permutation(count)[: picked * columns].reshape(columns, picked).T
        return rng.standard_normal((count, width)).astype(dtype), indices.astype(np.uint32)

    return make


def _scattered(src: np.ndarray, indices: np.ndarray, out: np.ndarray) -> np.ndarray:
    result = out.copy()
    result[indices[:, 0]] = src
    return result


def _gathered(src: np.ndarray, indices: np.ndarray) -> np.ndarray:
    rows = src[indices.T.reshape(-1)]
    return rows.T if rows.ndim == 2 else rows.transpose(3, 1, 2, 0)


def _scatter_inputs(rng: np.random.Generator) -> Arrays:
    out = rng.standard_normal((40, 16)).astype(np.float32)
    return rng.standard_normal((8, 16)).astype(np.float32), rng.permutation(40)[:8, None].astype(np.uint32), out


def _volume(rng: np.random.Generator) -> Arrays:
    src = rng.standard_normal((256, 2, 1, 64)).astype(ml_dtypes.bfloat16)
    return src, rng.permutation(256).reshape(2, 128).T.astype(np.uint32)


_MATMUL = "matrix_multiplication/matrix_multiplication_nki_kernels.py"
_TUTORIAL = "tutorials/kernel-optimization.rst"
_PRIVATE = {"output_buffer": "hbm"}
_LARGE = normal((1024, 2048), (1024, 1024), dtype=ml_dtypes.bfloat16)
_GUIDE = "get-started/nki-language-guide.rst"
_SCHEDULE = "guides/how-to-scheduling-apis.rst"

SAMPLES = [
    # tutorials
    Sample(_MATMUL, "nki_matmul_basic_", normal((128, 64), (128, 512)), product),
    Sample(_MATMUL, "nki_matmul_tiled_", normal((256, 256), (256, 1024)), product),
    Sample(_MATMUL, "nki_matmul_hoist_load_", normal((256, 256), (256, 1024)), product),
    Sample(_MATMUL, "nki_matmul_block_free_dimension_", normal((256, 512), (256, 2048)), product),
    Sample(_MATMUL, "nki_matmul_fully_optimized_", _LARGE, product, rtol=5e-2, atol=0.5),
    *[
        Sample("fused_mamba/mamba_nki_kernels.py", f"mamba_v{version}", _state_space_inputs, state_space, atol=1e-3)
        for version in (1, 2, 3)
    ],
    Sample("average_pool2d/average_pool2d_nki_kernels.py", "tensor_avgpool_kernel", _images, _pooled(np.mean)),
    Sample(
        "transpose2d/transpose2d_nki_kernels.py", "tensor_transpose2D_kernel_",
        lambda rng: (rng.integers(-128, 128, (5, 12)).astype(np.int8), (3, 4)), _turned,
    ),
    Sample(
        "tensor_addition/tensor_addition_nki_kernels.py", "nki_tensor_add",
        normal((256, 1024), (256, 1024), dtype=np.float16), add,
    ),
    *[
        Sample(
            "mxfp-matmul/mx_toplevel.py", name, lambda rng, given=given: given, product, arch="trn3", rtol=5e-2,
            atol=5e-2, compared_by="compare_and_print_results",
        )
        for name, given in (
            ("run_offline_quantized_matmul_mx_test", (ml_dtypes.float8_e5m2,)),
            ("run_offline_quantized_matmul_mx_test", (ml_dtypes.float4_e2m1fn,)),
            ("run_on_device_quantize_matmul_mx_test", (ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e5m2)),
            ("run_on_device_quantize_matmul_mx_test", (ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2)),
            ("run_copy_strided_test", (ml_dtypes.float8_e5m2, True)),
            ("run_copy_strided_test", (ml_dtypes.float8_e5m2, False)),
        )
    ],
    Sample(_TUTORIAL, "matrix_multiply_kernel", normal((128, 64), (128, 512)), product, 0, switches=_PRIVATE),
    Sample(_TUTORIAL, "matrix_multiply_kernel", normal((256, 256), (256, 1024)), product, 1, switches=_PRIVATE),
    Sample(_TUTORIAL, "matrix_multiply_kernel", normal((256, 256), (256, 1024)), product, 2, switches=_PRIVATE),
    Sample(_TUTORIAL, "matrix_multiply_kernel", normal((256, 512), (256, 2048)), product, 3, switches=_PRIVATE),
    Sample(
        _TUTORIAL, "matrix_multiply_kernel", lambda rng: (*normal((512, 256), (512, 1024))(rng), 2, 2, 2), product, 4,
        switches=_PRIVATE,
    ),
    # examples of the documentation, in files
    Sample("examples/layout-pass.py", "tensor_exp_kernel_", normal((128, 512)), exp),
    Sample(
        "examples/layout-violation.py", "tensor_exp_kernel_", normal((256, 512)), exp,
        broken="the page shows it for the error: 256 partitions",
    ),
    Sample(
        "examples/layout-loop.py", "tensor_exp_kernel_", normal((256, 512)), exp,
        broken="imports torch_neuronx and uses a name it does not define",
    ),
    Sample(
        "examples/layout-dynamic-loop.py", "tensor_exp_kernel_", normal((300, 512)), exp, broken="is not valid Python"
    ),
    Sample("examples/index-case-1.py", "tensor_split_kernel_", normal((4, 5)), lambda x: (x[:, ::2], x[:, 1::2])),
    Sample("examples/index-case-3.py", "tensor_maxpool_kernel_", _images, _pooled(np.max)),
    Sample("examples/getting_started_baremetal.py", "nki_tensor_add_kernel", normal((4, 3), (4, 3)), add),
    Sample("examples/getting_started_torch.py", "nki_tensor_add_kernel", normal((4, 3), (4, 3)), add),
    Sample("examples/simulate/nki_simulate_example.py", "add_kernel", normal((128, 512), (128, 512)), add),
    # samples of the API reference
    Sample("nki/isa/__init__.py", "indirect_gather_kernel", _rows(40, 16, 8), lambda x, i: x[i[:, 0]]),
    Sample("nki/isa/__init__.py", "indirect_scatter_kernel", _scatter_inputs, _scattered),
    Sample(
        "nki/isa/__init__.py", "nc_matmul_accumulate_kernel", normal((256, 64), (256, 512), dtype=ml_dtypes.bfloat16),
        product, atol=0.2,
    ),
    Sample(
        "nki/isa/__init__.py", "gather_transpose_kernel", _rows(200, 128, 128, dtype=ml_dtypes.bfloat16), _gathered
    ),
    Sample(
        "nki/isa/__init__.py", "gather_transpose_2d_kernel", _rows(300, 128, 128, 2, ml_dtypes.bfloat16), _gathered
    ),
    Sample("nki/isa/__init__.py", "gather_transpose_4d_kernel", _volume, _gathered),
    Sample(
        "nki/isa/__init__.py", "activate2_scale_bias_kernel", normal((128, 512)), lambda x: gelu(2 * x + 0.5),
        arch="trn3", atol=1e-3,
    ),
    # samples of the guides
    Sample("quickstart-implement-run-kernel.rst", "nki_tensor_add_kernel", normal((4, 3), (4, 3)), add, 1),
    Sample("nki-dma-overview.rst", "tensor_exp_kernel_isa", normal((4, 4096), dtype=ml_dtypes.bfloat16), exp, 0),
    Sample("nki-dma-overview.rst", "tensor_exp_kernel_isa", normal((128, 128), dtype=ml_dtypes.bfloat16), exp, 1),
    Sample("tiling-overview.rst", "tensor_exp_kernel_", normal((256, 512)), np.reciprocal, 0),
    Sample("tiling-overview.rst", "tensor_exp_kernel_", normal((256, 96)), np.reciprocal, 1),
    Sample("about/lnc.rst", "lnc_test", normal((2, 128, 128)), np.reciprocal, 1),
    Sample("about/lnc.rst", "lnc_test", normal((2, 128, 128)), np.reciprocal, 1, grid=2),
    Sample(_GUIDE, "nki_tensor_add_kernel", normal((4, 3), (4, 3)), add),
    Sample(
        _GUIDE, "relu_kernel", normal((256, 512), (256, 512)), lambda x, y: np.maximum(x, 0), copied=1
    ),
    Sample(_GUIDE, "scale_kernel", normal((256, 512), (256, 512)), lambda x, y: x / 2, copied=1),
    Sample(_SCHEDULE, "kernel", normal((64, 32)), lambda x: 1 / x + x + 1, 0, switches=_PRIVATE, atol=1e-2),
    *[
        Sample(
            _SCHEDULE, name, normal(*[(64, 32)] * 3), lambda a, b, c: (exp(a), exp(b), exp(c)), block, switches=_PRIVATE
        )
        for name, block in (("kernel", 1), ("loop", 0), ("loop", 1))
    ],
    Sample("migration/index.rst", "sb_blocks_migrated", normal((8, 128, 512)), lambda x: x, 0),
    Sample("migration/index.rst", "sb_blocks_migrated", normal((8, 128, 512)), lambda x: x, 1),
    Sample("migration/index.rst", "sb_blocks_migrated_incorrect", normal((8, 128, 512)), lambda x: x),
]  # fmt: skip
