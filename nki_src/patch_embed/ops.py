"""patch_embed for torch tensors: checks, views, and the kernel or its reference."""

from math import prod
from typing import Optional

import torch

from .._limits import DTYPES, LIMITS
from .._ops import add_op_namespace_prefix, define_op, get_backend, launch
from ..common.checks import (
    describe,
    require_dtype,
    require_rank,
    require_same_device,
    require_shape,
    require_tensor,
    require_within,
)
from ..common.weights import kept_weights
from . import reference
from .lines import ordered


def patch_embed(
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    class_token: Optional[torch.Tensor] = None,
    position: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """tokens[b, i * (W // P) + j] = weight @ the patch of image b at (i, j) + bias, patches in row-major order.

    image        [B, C, H, W]  float32, bfloat16 or float16; rows and columns beyond a multiple of P are not read
    weight       [N, C, P, P]  dtype of image, as are all others; C up to 4, P up to 32, N up to 8192
    bias         [N] or None
    class_token  [1, 1, N] or None: token 0 of every image
    position     [1, T, N] or [T, N] or None: added to the tokens; T = (H // P) * (W // P), one more with a class token
    returns      [B, T, N]     contiguous

    Images whose columns are contiguous are read where they lie; channels_last images too when weight is channels_last.
    Other layouts are copied first. The kernel runs fastest on a weight in the order of its contraction: a Parameter is
    copied to that at its first call and kept, see common/weights.py; any other weight is turned inside each call.
    Raises Unsupported for another dtype, size or device.
    """
    tokens = _check(image, weight, bias, class_token, position)
    if get_backend() == "cpu":
        return reference.patch_embed(image, weight, bias, class_token, position)
    if image.numel() == 0:
        return image.new_empty((image.shape[0], tokens, weight.shape[0]))
    return _patch_embed(image, weight, bias, class_token, position)


def _check(
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    class_token: Optional[torch.Tensor],
    position: Optional[torch.Tensor],
) -> int:
    """Refuse what is not served; the number of tokens per image otherwise."""
    vectors = {"bias": bias, "class_token": class_token, "position": position}
    for name, tensor in {"image": image, "weight": weight, **vectors}.items():
        require_tensor("patch_embed", name, tensor, optional=name in vectors)
        require_dtype("patch_embed", name, tensor, DTYPES)
        if tensor is not None:
            require_dtype("patch_embed", name, tensor, [str(image.dtype).replace("torch.", "")])
    require_same_device("patch_embed", image=image, weight=weight, **vectors)
    require_rank("patch_embed", "image", image, 4, 4)
    require_rank("patch_embed", "weight", weight, 4, 4)
    columns, channels, side, _ = weight.shape
    require_shape("patch_embed", "weight", weight, (columns, image.shape[1], side, side), "[N, C, P, P]")
    if min(image.shape[2:]) < side:
        raise ValueError(f"patch_embed: image has to hold a patch of {side} x {side}, got {describe(image)}")
    tokens = (image.shape[2] // side) * (image.shape[3] // side) + (class_token is not None)
    require_shape("patch_embed", "bias", bias, (columns,), "[N]")
    require_shape("patch_embed", "class_token", class_token, (1, 1, columns), "[1, 1, N]")
    if position is not None and position.ndim == 3:
        require_shape("patch_embed", "position", position, (1, tokens, columns), "[1, T, N]")
    else:
        require_shape("patch_embed", "position", position, (tokens, columns), "[T, N]")
    for letter, size in (("C", channels), ("P", side), ("N", columns)):
        require_within("patch_embed", letter, size, LIMITS)
    return tokens


def _impl(
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    class_token: Optional[torch.Tensor],
    position: Optional[torch.Tensor],
) -> torch.Tensor:
    from . import kernel

    columns, _, side, _ = weight.shape
    memory, grid, pixels_first = _as_grid(image, weight, side)
    _, lines, run = grid
    layout = prod(size for size, _ in lines), run, pixels_first
    matrix = kept_weights.get(weight, layout, lambda own: ordered(_as_matrix(own, pixels_first), *layout[:2]))
    is_ordered = matrix is not None
    if matrix is None:
        matrix = _as_matrix(weight, pixels_first)
    vectors = [None if tensor is None else tensor.contiguous() for tensor in (bias, class_token, position)]
    bias, class_token, position = vectors
    if class_token is not None:
        class_token = class_token.view(columns)
    if position is not None:
        position = position.view(-1, columns)
    return launch(kernel.patch_embed, memory, matrix, bias, class_token, position, grid, is_ordered)


def _fake(
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    class_token: Optional[torch.Tensor],
    position: Optional[torch.Tensor],
) -> torch.Tensor:
    columns, _, side, _ = weight.shape
    tokens = (image.shape[2] // side) * (image.shape[3] // side) + (class_token is not None)
    return image.new_empty((image.shape[0], tokens, columns))


def _as_grid(
    image: torch.Tensor, weight: torch.Tensor, side: int
) -> tuple[torch.Tensor, tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], int], bool]:
    """(memory under the image, where its patches lie in it, whether pixels come before channels).

    See kernel.patch_embed for the second.
    """
    batch, channels, height, width = image.shape
    by_pixel = weight.permute(0, 2, 3, 1)
    pixels_first = image.stride()[1::2] == (1, channels) and channels > 1 and by_pixel.is_contiguous()
    if not pixels_first and image.stride(3) != 1:
        image = image.contiguous()
    image_step, channel_step, row_step, column_step = image.stride()
    span = 1 + sum((size - 1) * step for size, step in zip(image.shape, image.stride()))
    outer = ((batch, image_step), (height // side, side * row_step), (width // side, side * column_step))
    lines = ((side, row_step),) if pixels_first else ((channels, channel_step), (side, row_step))
    return image.as_strided((span,), (1,)), (outer, lines, side * column_step), pixels_first


def _as_matrix(weight: torch.Tensor, pixels_first: bool) -> torch.Tensor:
    """weight [N, C, P, P] as [N, K], in the order in which a patch lies in memory."""
    return (weight.permute(0, 2, 3, 1) if pixels_first else weight.contiguous()).reshape(len(weight), -1)


if get_backend() == "neuron":
    _patch_embed = define_op(add_op_namespace_prefix("patch_embed"), _impl, _fake)
