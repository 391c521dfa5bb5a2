import pytest
import torch
import torch.nn.functional as F

from kernels_neuron.arch import chip
from kernels_neuron.cost.baseline import OpRecorder, baseline

TRN2 = chip("trn2")


def ops_of(reference, *, dtype="bfloat16", args=None, **inputs):
    return baseline(reference, inputs, args or {}, dtype, TRN2)


def ones(*shape, dtype=torch.bfloat16):
    return torch.ones(shape, dtype=dtype)


def test_a_linear_with_gelu_is_three_ops_with_round_trips_between():
    found = ops_of(lambda x, w, b: F.gelu(x @ w + b), x=ones(128, 64), w=ones(64, 256), b=ones(256))
    assert found.counts == {"matmul": 1, "add": 1, "gelu": 1}
    matmul, add, gelu = found.ops
    assert matmul.flops == 2 * 128 * 64 * 256
    assert matmul.nbytes == 2 * (128 * 64 + 64 * 256 + 128 * 256)
    assert add.nbytes == 2 * (2 * 128 * 256 + 256)
    assert gelu.nbytes == 2 * 2 * 128 * 256


def test_layer_norm_is_one_op_and_casts_cost_nothing():
    plain = ops_of(lambda x: F.layer_norm(x, x.shape[-1:]), x=ones(64, 64))
    widened = ops_of(lambda x: F.layer_norm(x.float(), x.shape[-1:]).to(x.dtype), x=ones(64, 64))
    assert plain.counts == widened.counts == {"native_layer_norm": 1}
    assert widened.ops[0].nbytes <= plain.ops[0].nbytes * 1.2


@pytest.mark.parametrize("mask", [None, torch.ones(2, 1, 50, 50, dtype=torch.bool)])
def test_attention_is_never_one_op(mask):
    q = ones(2, 4, 50, 32)
    found = ops_of(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), q=q, m=mask)
    assert found.counts["matmul"] == 2 and found.counts["softmax"] == 1
    assert sum(op.flops for op in found.ops) == 4 * 2 * 4 * 50 * 50 * 32


def test_attention_on_real_tensors_counts_the_same_matmuls():
    q = ones(2, 4, 50, 32)
    with OpRecorder("bfloat16") as recorder:
        F.scaled_dot_product_attention(q, q, q)
    kinds = [op.name for op in recorder.ops]
    assert kinds.count("matmul") == 2 and kinds.count("softmax") == 1


def test_views_scalars_and_allocations_cost_nothing():
    def views(x):
        y = x.transpose(0, 1).reshape(4, 4, -1).unsqueeze(0).expand(2, -1, -1, -1)[..., :1]
        return y, torch.empty_like(x), torch.zeros(3), x.sum() * 2

    assert ops_of(views, x=ones(16, 16)).counts == {}


def test_a_relayout_is_a_copy_and_a_convolution_counts_its_taps():
    assert ops_of(lambda x: x.transpose(0, 1).contiguous(), x=ones(16, 32)).counts == {"copy": 1}
    found = ops_of(lambda x, w: F.conv2d(x, w, stride=4), x=ones(2, 3, 16, 16), w=ones(8, 3, 4, 4))
    assert found.counts == {"convolution": 1}
    assert found.ops[0].flops == 2 * (2 * 8 * 4 * 4) * (3 * 4 * 4)


def test_an_expanded_input_counts_its_distinct_bytes():
    wide = ops_of(lambda x: F.gelu(x), x=ones(64, 64))
    narrow = ops_of(lambda x: F.gelu(x), x=ones(1, 64).expand(64, 64))
    assert wide.ops[0].nbytes == 2 * 2 * 64 * 64
    assert narrow.ops[0].nbytes < wide.ops[0].nbytes


def test_each_op_takes_its_own_roofline():
    found = ops_of(lambda x, w: F.gelu(x @ w), x=ones(2048, 2048), w=ones(2048, 2048))
    matmul, gelu = (2 * 2048**3 / 78.6e6, 2 * 2 * 2048**2 / 435.2e3)
    assert found.us == pytest.approx(matmul + gelu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_the_simulator_does_to_launch_a_kernel_is_no_op_of_the_caller(dtype):
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def copy(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=y, src=x)
        return y

    x = torch.ones(8, 16, dtype=dtype)
    with OpRecorder(str(dtype).removeprefix("torch.")) as recorder:
        copy(x.T.contiguous())
    assert [op.name for op in recorder.ops] == ["copy"]


def test_a_lookup_reads_the_rows_it_asks_for_and_not_the_table():
    table, rows = torch.zeros(50_000, 64), torch.zeros(3, 7, dtype=torch.int64)

    def looked_up(table, rows):
        return torch.nn.functional.embedding(rows, table)

    (op,) = baseline(looked_up, {"table": table, "rows": rows}, {}, "float32", TRN2).ops
    assert (op.name, op.nbytes) == ("gather", 2 * 3 * 7 * 64 * 4 + 3 * 7 * 4)
