import importlib

import pytest
import torch
from torch import nn

from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
FLOAT64_SUMS = Settings(switches={"matmul_sum": "float64"})


@pytest.fixture(scope="module")
def module(load):
    return load("vit_attn")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def inputs(batch=2, heads=3, queries=20, keys=30, width=16, dtype=torch.float32):
    shapes = (queries, keys, keys)
    return [torch.randn(batch, heads, length, width).to(dtype) for length in shapes]


def expected(q, k, v, scale=None, mask=None):
    """Attention in float64 over the keys of `mask`; 0 for a row without keys."""
    scores = q.double() @ k.double().transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, -1)) @ v.double()


def assert_close(out, ref):
    if out.dtype == torch.float32:
        allowed = torch.full_like(ref, 2e-5)
    else:
        bits = 8 if out.dtype == torch.bfloat16 else 11
        allowed = 2.0 ** (1 - bits) * ref.abs() + 2.0**-bits * ref.abs().max()
    assert bool(((out.double() - ref).abs() <= allowed).all())


@pytest.mark.parametrize("width", [16, 31, 32, 64, 80, 96, 97, 100, 127, 128, 129, 160, 225, 256])
def test_every_head_size_is_served(module, width):
    q, k, v = inputs(1, 2, 9, 11, width)
    assert_close(module.vit_attn(q, k, v), expected(q, k, v))


@pytest.mark.parametrize("length", [1, 63, 65, 100, 127, 129, 191, 255, 300])
def test_every_length_is_served(module, length):
    q, k, v = inputs(1, 1, length, length, 16, torch.bfloat16)
    assert_close(module.vit_attn(q, k, v), expected(q, k, v))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_batch_entry_alone_equals_the_entry_in_a_batch(module, dtype):
    q, k, v = inputs(4, 3, 40, 50, 32, dtype)
    mask = torch.rand(4, 50) < 0.5
    with using(settings=FLOAT64_SUMS):
        together = module.vit_attn(q, k, v, key_mask=mask)
        for b in range(4):
            one = slice(b, b + 1)
            assert torch.equal(module.vit_attn(q[one], k[one], v[one], key_mask=mask[one])[0], together[b])


@pytest.mark.parametrize("shape", [(2, 3, 20), (1, 1, 300), (1, 1, 1)], ids=str)
def test_cores_do_not_change_the_result(module, monkeypatch, shape):
    q, k, v = inputs(*shape, keys=40)
    with using(settings=FLOAT64_SUMS):
        alone = module.vit_attn(q, k, v)
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
        with using(settings=FLOAT64_SUMS) as runs:
            assert torch.equal(module.vit_attn(q, k, v), alone)
    assert [run.lnc for run in runs] == [2]


def laid_out(tensor, layout):
    if layout == "bshd":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "packed":
        return torch.stack([tensor.transpose(1, 2)] * 3, 2)[:, :, 1].transpose(1, 2)
    if layout == "strided":
        return torch.repeat_interleave(tensor, 2, -1)[..., ::2]
    return tensor


@pytest.mark.parametrize("layout", ["bshd", "packed", "strided"])
@pytest.mark.parametrize("which", [0, 1, 2], ids="qkv".__getitem__)
def test_strides_do_not_change_the_result(module, layout, which):
    tensors = inputs()
    # which pairs share a tile depends on the strides, and with it the order in which sums are taken
    with using(settings=FLOAT64_SUMS):
        ref = module.vit_attn(*tensors)
        tensors[which] = laid_out(tensors[which], layout)
        assert torch.equal(module.vit_attn(*tensors), ref)


def test_heads_beside_positions_are_neither_copied_nor_reordered(module):
    tensors = [laid_out(tensor, "bshd") for tensor in inputs()]
    with using() as runs:
        out = module.vit_attn(*tensors)
    assert out.transpose(1, 2).is_contiguous()
    shapes = [tile.shape for tile in runs[0].traces[0].tiles.values() if not tile.on_chip]
    assert shapes == [(2, 20, 3, 16), (2, 30, 3, 16), (2, 30, 3, 16), (2, 20, 3, 16)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [0.0, -0.5, 3.0])
def test_any_scale_keeps_exp_in_range(module, dtype, scale):
    q, k, v = inputs(1, 2, 12, 14, 64, dtype)
    q = q * 8
    mask = torch.rand(1, 14) < 0.6
    mask[0, 0] = True
    out = module.vit_attn(q, k, v, scale, mask)
    if dtype == torch.float32:
        # scores of some hundreds carry errors of 1e-5 themselves
        torch.testing.assert_close(out.double(), expected(q, k, v, scale, mask), rtol=0, atol=1e-3)
    else:
        assert_close(out, expected(q, k, v, scale, mask))


# ---- short sequences, several pairs of batch entry and head to a tile


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("bshd", (9, 2, 17, 17, 16)),
        ("bhsd", (8, 1, 17, 16, 32)),
        ("bhsd", (5, 1, 5, 40, 64)),
        ("bshd", (4, 2, 60, 7, 80)),
        ("bshd", (33, 1, 1, 1, 96)),
        ("bhsd", (3, 5, 64, 64, 31)),
    ],
    ids=str,
)
def test_short_sequences_are_served(module, dtype, layout, shape):
    q, k, v = (laid_out(tensor, layout) for tensor in inputs(*shape, dtype))
    assert_close(module.vit_attn(q, k, v), expected(q, k, v))
    assert_close(module.vit_attn(q, k, v, share_tiles=True), expected(q, k, v))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_short_sequences_share_tiles(module, layout):
    tensors = [laid_out(tensor, layout) for tensor in inputs(14, 2, 17, 17, 16, torch.bfloat16)]
    with using() as runs:
        module.vit_attn(*tensors, share_tiles=True)
    # less than the three products that each pair would take on its own
    assert runs[0].instructions < 28 * 3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cores", ["1", "2"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_a_pair_alone_equals_the_pair_in_a_tile(module, monkeypatch, dtype, cores, layout):
    q, k, v = (laid_out(tensor, layout) for tensor in inputs(6, 2, 20, 30, 32, dtype))
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", cores)
    with using(settings=FLOAT64_SUMS):
        together = module.vit_attn(q, k, v, share_tiles=True)
        for b, h in [(0, 0), (2, 1), (5, 1)]:
            one = (slice(b, b + 1), slice(h, h + 1))
            assert torch.equal(module.vit_attn(q[one], k[one], v[one])[0, 0], together[b, h])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [0.25, -0.5, 1e-4, 0.0])
def test_large_scores_between_pairs_change_nothing(module, dtype, scale):
    q, k, v = inputs(6, 1, 17, 17, 16, dtype)
    # the scores between a pair and the next are some thousands times those within it
    q[::2] *= 1e-3
    k[1::2] *= 1e-3
    q[1::2] *= 1e3
    k[::2] *= 1e3
    v[::2] *= 0.5
    with using(settings=FLOAT64_SUMS):
        together = module.vit_attn(q, k, v, scale, share_tiles=True)
        alone = torch.cat([module.vit_attn(*(tensor[b : b + 1] for tensor in (q, k, v)), scale) for b in range(6)])
    assert torch.equal(together, alone)
    assert_close(together, expected(q, k, v, scale))


@pytest.mark.parametrize("which", [0, 1, 2], ids="qkv".__getitem__)
@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
def test_what_is_not_finite_stays_in_its_batch_entry_and_head(module, number, which):
    tensors = inputs(14, 2, 17, 17)
    tensors[which][8, 1, 3, 5] = number
    out = module.vit_attn(*tensors)
    others = torch.ones(14, 2, dtype=torch.bool)
    others[8, 1] = False
    assert_close(out[others], expected(*tensors)[others])
    assert not bool(out[8, 1].isfinite().all())


@pytest.mark.parametrize("which", [1, 2], ids="qkv".__getitem__)
@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
def test_in_shared_tiles_what_is_not_finite_stays_in_its_tile(module, number, which):
    tensors = inputs(14, 1, 17, 17)
    tensors[0][1, 0, 4, 2] = number
    tensors[which][8, 0, 3, 5] = number
    out = module.vit_attn(*tensors, share_tiles=True)[:, 0]
    # in q it concerns one row; in k or v every pair of its tile, which PyTorch would keep apart
    spoilt = torch.zeros(14, 17, dtype=torch.bool)
    spoilt[1, 4] = spoilt[7:] = True
    assert_close(out[~spoilt], expected(*tensors)[:, 0][~spoilt])
    if number != number:
        assert bool(out[spoilt].isnan().any(-1).all())


def test_masked_keys_do_not_lift_the_maximum(module):
    q, k, v = inputs(1, 1, 5, 6, 32)
    mask = torch.tensor([[True, True, True, False, False, False]])
    k[:, :, 3:] = 1e3 * q[:, :, :1]
    out = module.vit_attn(q, k, v, key_mask=mask)
    assert_close(out, expected(q, k[:, :, :3], v[:, :, :3]))


def test_a_row_without_keys_is_exactly_zero(module):
    q, k, v = inputs()
    mask = torch.ones(2, 30, dtype=torch.bool)
    mask[1] = False
    out = module.vit_attn(q, k, v, key_mask=mask)
    assert bool((out[1] == 0).all())
    assert_close(out, expected(q, k, v, mask=mask))


@pytest.mark.parametrize("shape", [(0, 3, 20, 30), (2, 0, 20, 30), (2, 3, 0, 30)], ids=["batch", "heads", "queries"])
def test_empty_tensors_give_empty_results_without_a_launch(module, shape):
    q, k, v = inputs(*shape)
    with using() as runs:
        out = module.vit_attn(q, k, v)
    assert out.shape == q.shape
    assert not runs


def test_no_keys_at_all_give_zeros(module):
    q, k, v = inputs(keys=0)
    with using() as runs:
        assert torch.equal(module.vit_attn(q, k, v), torch.zeros_like(q))
    assert not runs


def bad(**changes):
    q, k, v = inputs(width=changes.pop("width", 16))
    return {"q": q, "k": k, "v": v, **changes}


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (bad(q=torch.ones(3, 20, 16)), ValueError, "q has to have 4 axes"),
        (bad(width=257), ValueError, "D has to be 16 to 256, got 257"),
        (bad(q=torch.ones(2, 3, 20, 16, dtype=torch.float64)), ValueError, "q has to be float32, bfloat16 or float16"),
        (bad(k=torch.ones(2, 3, 30, 16, dtype=torch.float16)), ValueError, "k has to have the dtype of q"),
        (bad(v=torch.ones(2, 3, 30, 16, device="meta")), ValueError, "v is on meta"),
        (bad(v=torch.ones(2, 3, 29, 16)), ValueError, "v has to have shape"),
        (bad(key_mask=torch.ones(2, 0, dtype=torch.bool)), ValueError, "key_mask has to have shape"),
        (bad(key_mask=torch.ones(2, 30)), ValueError, "key_mask has to be bool"),
        (bad(q=None), TypeError, "q has to be a tensor"),
    ],
    ids=["rank", "head size", "dtype", "mixed dtypes", "device", "length", "mask shape", "mask dtype", "none"],
)
def test_bad_input_is_refused_by_name_before_any_work(module, arguments, error, says):
    with using() as runs, pytest.raises(error, match=says):
        module.vit_attn(**arguments)
    assert not runs


# ---- transformers' attention interface


def interface_masks():
    keep = torch.ones(2, 30, dtype=torch.bool)
    keep[0, 5:] = False
    wide = keep[:, None, None].expand(2, 1, 20, 30)
    zero = torch.zeros(())
    return {
        "bool": wide,
        "minus infinity": torch.where(wide, zero, float("-inf")),
        "least number": torch.where(wide, zero, torch.finfo(torch.float32).min),
        "written out": wide.contiguous(),
        "one row": keep[:, None, None],
    }, keep


@pytest.mark.parametrize("name", list(interface_masks()[0]))
def test_attention_forward_reads_every_form_of_a_key_mask(module, name):
    masks, keep = interface_masks()
    q, k, v = inputs()
    out, weights = module.attention_forward(nn.Module(), q, k, v, masks[name], scaling=0.3)
    assert weights is None
    assert out.shape == (2, 20, 3, 16)
    assert_close(out.transpose(1, 2), expected(q, k, v, 0.3, keep))


@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (torch.rand(2, 1, 20, 30) < 0.5, {}),
        (torch.randn(2, 1, 1, 30), {}),
        (torch.ones(30, dtype=torch.bool), {}),
        (None, {"dropout": 0.1}),
        (None, {"is_causal": True}),
        (None, {"sliding_window": 4}),
    ],
    ids=["differs by query", "bias", "rank", "dropout", "causal", "window"],
)
def test_attention_forward_refuses_what_the_kernel_does_not_compute(module, mask, options):
    with pytest.raises(module.Unsupported) as refused:
        module.attention_forward(nn.Module(), *inputs(), mask, **options)
    assert refused.value.reason == "mask-kind"


@pytest.mark.parametrize("variant", ["torch-neuron", "torch-cpu"])
def test_has_backward_says_what_the_variant_can(load, variant):
    module = load("vit_attn", variant)
    assert module.attention is module.vit_attn
    assert module.attention_forward.has_backward == (variant == "torch-cpu")
    q, k, v = inputs()
    assert_close(module.vit_attn(q, k, v), expected(q, k, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("share", [False, True])
def test_opcheck(module, dtype, share):
    op = importlib.import_module(f"{module.__name__}.vit_attn.ops")._op
    tensors = inputs(1, 2, 5, 6, 16, dtype)
    mask = torch.tensor([[1, 1, 0, 1, 0, 1]], dtype=torch.uint8)
    torch.library.opcheck(op, (*tensors, mask, 0.25, "bhsd", "bhsd", "bhsd", share))
    torch.library.opcheck(op, (*tensors, None, 0.25, "bhsd", "bhsd", "bhsd", share))
