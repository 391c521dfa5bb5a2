import os
import sys
import types

import pytest
import torch

from kernels_neuron.artifact import import_variant
from kernels_neuron.builder import build


def test_a_kernel_without_layers_and_benchmark_has_a_card_without_them(project, edit):
    edit("__init__.py", "from .ops import halve\n\n__all__ = ['halve']\n")
    (project.sources / "halve" / "benchmark.py").unlink()
    (built,) = build(project)
    card = (built.root / "README.md").read_text()
    assert "## Layers" not in card
    assert "## Benchmark" not in card
    assert not (built.root / "benchmarks").exists()
    assert import_variant(built.variants["torch-cpu"]).halve(torch.ones(1)).item() == 1


def test_one_dtype_and_limits_render_as_python(project, edit):
    edit("spec.toml", '["float32", "bfloat16", "float16"]', '["float32"]')
    (built,) = build(project)
    module = import_variant(built.variants["torch-cpu"])
    assert sys.modules[f"{module.__name__}._limits"].DTYPES == ("float32",)


@pytest.fixture
def ops(project, edit):
    """The generated _ops.py of a fresh build, with a namespace of its own."""
    edit("reference.py", "y = scale * x", f"y = scale * x, {os.urandom(8).hex()}")
    (built,) = build(project)
    module = import_variant(built.variants["torch-neuron"])
    return sys.modules[f"{module.__name__}._ops"]


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def fake_twice(x):
    return torch.empty_like(x)


def test_operators_carry_the_id_of_the_build(ops):
    name = ops.add_op_namespace_prefix("twice")
    op = ops.define_op(name, twice, fake_twice)
    assert name == f"{ops.__package__}::twice"
    assert ops.get_backend() == "neuron"
    assert getattr(torch.ops, ops.__package__).twice is op
    assert op(torch.ones(2)).tolist() == [2, 2]


def test_an_operator_passes_opcheck(ops):
    op = ops.define_op(ops.add_op_namespace_prefix("twice"), twice, fake_twice)
    torch.library.opcheck(op, (torch.ones(2, 3),))


def test_an_operator_without_backward_says_so(ops):
    op = ops.define_op(ops.add_op_namespace_prefix("twice"), twice, fake_twice)
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="twice has no backward on neuron"):
        op(x).sum().backward()


def test_an_operator_with_backward_has_gradients(ops):
    def backward(ctx, grad):
        return grad * 2

    op = ops.define_op(ops.add_op_namespace_prefix("twice"), twice, fake_twice, backward)
    x = torch.ones(2, requires_grad=True)
    op(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_an_operator_may_write_to_its_argument(ops):
    def double_(x: torch.Tensor) -> None:
        x.mul_(2)

    op = ops.define_op(ops.add_op_namespace_prefix("double_"), double_, lambda x: None, mutates_args=("x",))
    x = torch.ones(2)
    op(x)
    assert x.tolist() == [2, 2]


def test_an_operator_defined_twice_is_one(ops):
    name = ops.add_op_namespace_prefix("twice")
    assert ops.define_op(name, twice, fake_twice) is ops.define_op(name, twice, fake_twice)


class Recorder:
    """A kernel that notes on how many cores it is launched."""

    def __init__(self):
        self.cores = 1

    def __getitem__(self, cores):
        self.cores = cores
        return self

    def __call__(self, *args):
        return self.cores, args


def test_a_kernel_is_launched_on_the_cores_of_the_environment(ops, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch_neuronx", raising=False)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert ops.launch(Recorder(), 1, 2) == (2, (1, 2))
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG")
    assert ops.launch(Recorder(), 1, 2) == (1, (1, 2))


def test_torchneuron_is_used_where_it_is_loaded(ops, monkeypatch):
    wrapped = []
    device = types.SimpleNamespace(
        utils=types.SimpleNamespace(get_logical_neuron_cores=lambda: 2),
        wrap_nki=lambda kernel: wrapped.append(kernel) or kernel,
        nki_op=lambda name, mutates_args: torch.library.custom_op(name, mutates_args=mutates_args),
    )
    monkeypatch.setitem(sys.modules, "torch_neuronx", device)
    kernel = Recorder()
    assert ops.launch(kernel, 1) == (2, (1,))
    assert wrapped == [kernel]
    op = ops.define_op(ops.add_op_namespace_prefix("on_device"), twice, fake_twice)
    x = torch.ones(2, requires_grad=True)
    assert op(x).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="on_device has no backward on neuron"):
        op(x).sum().backward()
