"""A module on the device: the same Parameters before and after, training as on the CPU."""

import copy
import weakref

import pytest
import torch
from torch import nn

N = "neuron"


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


def train(model, optimizer, x, y, steps=3):
    def loss():
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(model(x), y)
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(loss)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(1))

    def forward(self, index):
        return self.head(self.embedding(index)) * self.scale


@pytest.mark.parametrize("move", [lambda m: m.to(N), lambda m: m.neuron(), lambda m: m.to(N, torch.bfloat16)])
def test_a_parameter_stays_the_object_it_was(move):
    model = make_model()
    before = list(model.parameters())
    move(model)
    assert all(ours is theirs for ours, theirs in zip(model.parameters(), before, strict=True))
    assert {p.device.type for p in before} == {N} and all(type(p) is nn.Parameter for p in before)
    model.cpu()
    assert all(ours is theirs for ours, theirs in zip(model.parameters(), before, strict=True))


def test_tied_weights_stay_tied_and_buffers_move():
    model = Tied()
    weight = model.embedding.weight
    model.to(N)
    assert model.head.weight is model.embedding.weight is weight and model.scale.device.type == N
    model(torch.tensor([1, 2], device=N)).sum().backward()
    assert weight.grad.device.type == N


def test_a_gradient_moves_with_its_parameter():
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    model.to(N)
    model(torch.ones(1, 2, device=N)).sum().backward()
    model.cpu()
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad.tolist() == [[3, 3], [3, 3]]


def test_conversions_on_the_cpu_are_torchs_own():
    model = nn.Linear(2, 2)
    alias = model.weight.data
    weakly = weakref.ref(model.weight)  # a swap would refuse a parameter with weak references
    assert model.half().weight is weakly() and alias.dtype is torch.float32
    assert not torch.__future__.get_swap_module_params_on_conversion()


OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "Adam": (torch.optim.Adam, {}),
    "AdamW fused": (torch.optim.AdamW, {"fused": True}),
    "AdamW one by one": (torch.optim.AdamW, {"foreach": False}),
    "RMSprop": (torch.optim.RMSprop, {}),
    "LBFGS": (torch.optim.LBFGS, {}),
}


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS.values(), ids=list(OPTIMIZERS))
def test_an_optimizer_built_before_the_move_trains_as_on_the_cpu(kind, options):
    model = make_model()
    reference = copy.deepcopy(model)
    optimizer = kind(model.parameters(), **options)
    model.to(N)
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 1, 0])
    train(model, optimizer, x.to(N), y.to(N))
    train(reference, kind(reference.parameters(), **options), x, y)
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer, x.to(N), y.to(N), steps=1)


def test_gradients_are_clipped_and_scaled():
    model = nn.Linear(2, 2).to(N)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(N)
    scaler.scale(model(torch.ones(1, 2, device=N)).sum()).backward()
    scaler.unscale_(optimizer)
    assert nn.utils.clip_grad_norm_(model.parameters(), 0.1).device.type == N
    scaler.step(optimizer)
    scaler.update()


MODULES = {
    "LSTM": (lambda: nn.LSTM(4, 5, num_layers=2, batch_first=True), (2, 3, 4)),
    "GRU": (lambda: nn.GRU(4, 5, bidirectional=True, bias=False), (3, 2, 4)),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 6, 6)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (2, 4)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (1, 2, 4, 4)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 4, 4)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 3, 8)),
}


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize(("make", "shape"), MODULES.values(), ids=list(MODULES))
def test_a_module_computes_what_it_computes_on_the_cpu(make, shape, training):
    torch.manual_seed(0)
    here = make().train(training)
    there = copy.deepcopy(here).to(N)
    x = torch.randn(shape)
    results = []
    for module, given in ((there, x.to(N)), (here, x)):
        given.requires_grad_(training)
        with torch.set_grad_enabled(training):
            y = module(given)
        y = y[0] if isinstance(y, tuple) else y
        if training:
            y.pow(2).sum().backward()
            results.append([y, given.grad, *(p.grad for p in module.parameters()), *module.buffers()])
        else:
            results.append([y])
    for ours, theirs in zip(*results, strict=True):
        assert ours.device.type == N
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)


def test_multihead_attention_takes_its_fast_path():
    torch.manual_seed(0)
    here = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    there = copy.deepcopy(here).to(N)
    with torch.no_grad():
        torch.testing.assert_close(there(*[x.to(N)] * 3)[0].cpu(), here(x, x, x)[0])


def test_checkpointing_repeats_the_dropout():
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)).to(N)
    x = torch.randn(2, 4, device=N, requires_grad=True)
    y = checkpoint(model, x, use_reentrant=False)
    y.sum().backward()
    mask = (y != 0).float() * 2
    torch.testing.assert_close(x.grad.cpu(), (mask @ model[0].weight).detach().cpu())
