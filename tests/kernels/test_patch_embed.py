import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using

# sums that do not depend on the shapes BLAS is called with
EXACT = Settings(switches={"matmul_sum": "float64"})


@pytest.fixture(scope="module")
def module(load):
    return load("patch_embed")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def convolution(image, weight, bias=None):
    return F.conv2d(image.double(), weight.double(), bias, stride=weight.shape[-1]).flatten(2).transpose(1, 2)


def assert_close(out, ref):
    torch.testing.assert_close(out.double(), ref, rtol=1e-5, atol=1e-5 * float(ref.abs().max()))


def test_patches_are_row_major_and_channels_come_first(module):
    image = torch.arange(3 * 8 * 12, dtype=torch.float32).view(1, 3, 8, 12)
    weight = torch.eye(48).view(48, 3, 4, 4)
    tokens = module.patch_embed(image, weight)
    expected = image.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(1, 6, 48)
    assert torch.equal(tokens, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_image_alone_equals_the_image_in_a_batch(module, dtype):
    images, weight = torch.randn(5, 3, 32, 48).to(dtype), torch.randn(24, 3, 8, 8).to(dtype)
    with using(settings=EXACT):
        together = module.patch_embed(images, weight)
        for i in (0, 2, 4):
            assert torch.equal(module.patch_embed(images[i : i + 1], weight)[0], together[i])


@pytest.mark.parametrize("cores", ["1", "2"])
def test_cores_do_not_change_the_result(module, monkeypatch, cores):
    given = torch.randn(3, 3, 20, 24), torch.randn(40, 3, 4, 4), torch.randn(40), torch.randn(1, 1, 40)
    with using(settings=EXACT):
        alone = module.patch_embed(*given)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", cores)
    with using(settings=EXACT) as runs:
        assert torch.equal(module.patch_embed(*given), alone)
    assert [run.lnc for run in runs] == [int(cores)]


def layouts():
    base = torch.randn(4, 3, 24, 20)
    return {
        "cropped": base[:, :, 3:, 1:18],
        "every second image": base[::2],
        "every second row": base[:, :, ::2],
        "every second column": base[..., ::2],
        "channels last": base.contiguous(memory_format=torch.channels_last),
        "two of three channels": base[:, 1:],
        "transposed": base.transpose(2, 3),
        "one image repeated": base[:1].expand(4, 3, 24, 20),
        "flipped": base.flip(3),
    }


@pytest.mark.parametrize("name", list(layouts()))
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["weight", "weight last"])
def test_strides_do_not_change_the_result(module, name, memory_format):
    image = layouts()[name]
    weight = torch.randn(16, image.shape[1], 4, 4).contiguous(memory_format=memory_format)
    assert_close(module.patch_embed(image, weight), convolution(image, weight))


@pytest.mark.parametrize("name", ["cropped", "every second column", "channels last"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["weight", "weight last"])
def test_a_kept_weight_changes_no_bit_of_the_result(module, name, memory_format):
    image = layouts()[name]
    weight = torch.randn(140, image.shape[1], 4, 4).contiguous(memory_format=memory_format)
    parameter = nn.Parameter(weight, requires_grad=False)
    with using(settings=EXACT) as runs:
        outs = [module.patch_embed(image, each) for each in (weight, parameter, parameter)]
        parameter.data = -parameter.data
        assert torch.equal(module.patch_embed(image, parameter), -outs[0])
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])
    assert runs[1].instructions == runs[2].instructions < runs[0].instructions


def test_one_weight_serves_images_in_both_orders(module):
    last = torch.randn(16, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    weight = nn.Parameter(last, requires_grad=False)
    images = layouts()
    for name in ("cropped", "channels last", "cropped", "channels last"):
        assert_close(module.patch_embed(images[name], weight), convolution(images[name], weight))


def test_a_patch_row_longer_than_a_tile_and_an_image_shorter_than_one_agree_with_the_convolution(module):
    for shape in ((2, 1, 4, 700), (70, 1, 4, 6), (2, 1, 600, 2)):
        image, weight = torch.randn(shape), torch.randn(8, 1, 2, 2)
        assert_close(module.patch_embed(image, weight), convolution(image, weight))


def test_more_images_than_partitions_get_their_class_token(module):
    image, weight = torch.randn(130, 1, 2, 2), torch.randn(8, 1, 2, 2)
    class_token, position = torch.randn(1, 1, 8), torch.randn(2, 8)
    tokens = module.patch_embed(image, weight, class_token=class_token, position=position)
    assert torch.equal(tokens[:, 0], (class_token[0, 0] + position[0]).expand(130, 8))


def test_no_images_give_an_empty_result_without_a_launch(module):
    with using() as runs:
        out = module.patch_embed(torch.empty(0, 3, 8, 8).half(), torch.empty(16, 3, 4, 4).half())
    assert (out.shape, out.dtype, runs) == ((0, 4, 16), torch.float16, [])


GIVEN = {"image": torch.zeros(1, 3, 8, 8), "weight": torch.zeros(16, 3, 4, 4)}


@pytest.mark.parametrize(
    "arguments,error,message",
    [
        ({"image": torch.zeros(3, 8, 8)}, ValueError, r"image has to have 4 axes, got float32\[3, 8, 8\]"),
        (
            {"image": torch.zeros(1, 3, 8, 3)},
            ValueError,
            r"image has to hold a patch of 4 x 4, got float32\[1, 3, 8, 3\]",
        ),
        ({"image": GIVEN["image"].double()}, ValueError, "image has to be float32, bfloat16 or float16, got float64"),
        ({"weight": GIVEN["weight"].bfloat16()}, ValueError, "weight has to be float32, got bfloat16"),
        ({"weight": torch.zeros(16, 3, 4, 5)}, ValueError, r"weight has to have shape \[N, C, P, P\]"),
        (
            {"weight": torch.zeros(16, 1, 4, 4)},
            ValueError,
            r"weight has to have shape \[N, C, P, P\] = \[16, 3, 4, 4\]",
        ),
        ({"bias": torch.zeros(15)}, ValueError, r"bias has to have shape \[N\] = \[16\], got float32\[15\]"),
        ({"class_token": torch.zeros(16)}, ValueError, r"class_token has to have shape \[1, 1, N\] = \[1, 1, 16\]"),
        ({"position": torch.zeros(1, 5, 16)}, ValueError, r"position has to have shape \[1, T, N\] = \[1, 4, 16\]"),
        ({"weight": GIVEN["weight"].to("meta")}, ValueError, "weight is on meta, image on cpu"),
        ({"bias": 0.0}, TypeError, "bias has to be a tensor or None, got float"),
    ],
    ids=["rank", "small", "dtype", "mixed", "oblong", "channels", "bias", "class token", "position", "device", "type"],
)
def test_bad_input_is_refused_by_name_limit_and_value(module, arguments, error, message):
    with using() as runs, pytest.raises(error, match=f"^patch_embed: {message}"):
        module.patch_embed(**(GIVEN | arguments))
    assert runs == []


@pytest.mark.parametrize("letter,shape", [("C", (1, 5, 4, 4)), ("P", (1, 1, 33, 33)), ("N", (8193, 1, 1, 1))])
def test_a_size_beyond_its_limit_is_unsupported(module, letter, shape):
    image = torch.zeros(1, shape[1], 40, 40)
    with pytest.raises(module.Unsupported, match=f"{letter} has to be 1 to ") as refusal:
        module.patch_embed(image, torch.zeros(shape))
    assert refusal.value.reason == "shape"


def test_the_operator_passes_opcheck(module):
    op = module.patch_embed.__globals__["_patch_embed"]
    image = torch.randn(2, 3, 9, 8)
    torch.library.opcheck(op.default, (image, torch.randn(5, 3, 4, 4), torch.randn(5), torch.randn(1, 1, 5), None))


def test_a_backward_through_the_kernel_raises(module):
    weight = torch.randn(5, 1, 2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no backward"):
        module.patch_embed(torch.randn(1, 1, 4, 4), weight).sum().backward()


def test_the_layer_returns_what_the_convolution_returns(module):
    host = nn.Conv2d(3, 10, 4, stride=4)
    image = torch.randn(2, 3, 9, 14)
    with torch.no_grad():
        out, expected = module.layers.PatchEmbedding.forward(host, image), host(image)
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [{"stride": 2}, {"stride": 4, "padding": 1}, {"stride": 4, "dilation": 2}, {"stride": 4, "groups": 2}],
    ids=["stride", "padding", "dilation", "groups"],
)
def test_the_layer_refuses_other_convolutions(module, settings):
    host = nn.Conv2d(4, 8, 4, **settings)
    with pytest.raises(module.Unsupported, match="PatchEmbedding"):
        module.layers.PatchEmbedding.forward(host, torch.randn(1, 4, 16, 16))
