"""The fused cells torch asks of an accelerator for nn.LSTM and nn.GRU; its CPU has none under these names."""

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
Triple = tuple[Tensor, Tensor, Tensor]


def _with_bias(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None = None, hidden_bias: Any = None
) -> Triple:
    """hy, cy and the activated gates i, f, g, o side by side: cy = f * cx + i * g, hy = o * tanh(cy)."""
    gates = _with_bias(input_gates, input_bias) + _with_bias(hidden_gates, hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates before their activation, of cx, and of each bias."""
    i, f, g, o = workspace.chunk(4, 1)
    tanh = cy.tanh()
    of_hy = torch.zeros_like(cy) if grad_hy is None else grad_hy
    of_cy = of_hy * o * (1 - tanh * tanh) + (0 if grad_cy is None else grad_cy)
    parts = (of_cy * g * i * (1 - i), of_cy * cx * f * (1 - f), of_cy * i * (1 - g * g), of_hy * tanh * o * (1 - o))
    gates = torch.cat(parts, 1)
    return gates, of_cy * f, gates.sum(0) if has_bias else gates.new_empty(0)


def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None = None, hidden_bias: Any = None
) -> tuple[Tensor, Tensor]:
    """hy = n + z * (hx - n) with n = tanh(n_in + r * n_hidden), and r, z, n, hx, n_hidden side by side."""
    r_in, z_in, n_in = _with_bias(input_gates, input_bias).chunk(3, 1)
    r_hidden, z_hidden, n_hidden = _with_bias(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (r_in + r_hidden).sigmoid(), (z_in + z_hidden).sigmoid()
    n = (n_in + r * n_hidden).tanh()
    return n + z * (hx - n), torch.cat((r, z, n, hx, n_hidden), 1)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of input gates, hidden gates, hx and the two biases."""
    r, z, n, hx, n_hidden = workspace.chunk(5, 1)
    of_n = grad_hy * (1 - z) * (1 - n * n)
    of_z = grad_hy * (hx - n) * z * (1 - z)
    of_r = of_n * n_hidden * r * (1 - r)
    of_input, of_hidden = torch.cat((of_r, of_z, of_n), 1), torch.cat((of_r, of_z, of_n * r), 1)
    none = grad_hy.new_empty(0)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (none, none)
    return of_input, of_hidden, grad_hy * z, *biases


CELLS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
