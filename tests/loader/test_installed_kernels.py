"""The installation's own artifacts in a small transformer, run by the simulator."""

import pytest
import torch

import kernels_neuron
from kernels_neuron.sim.context import using

# random weights this large spread rounding errors: the plain model in bfloat16 is off by 1e-2 as well
LOGITS = {torch.float32: 2e-5, torch.bfloat16: 3e-2}
LAYERS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_every_layer_runs_in_the_simulator_and_stays_within_the_limits(make_vit, images, dtype):
    plain = make_vit(hidden_size=64)
    model = kernels_neuron.kernelize(make_vit(hidden_size=64).to(dtype), strict=True)
    padding = torch.ones(3, 17, dtype=torch.long)
    padding[1, 9:] = 0
    with torch.no_grad(), using(arch="trn2") as runs:
        out = model(images.to(dtype), attention_mask=padding).logits
        expected = plain(images, attention_mask=padding).logits
    assert len(runs) == 21 and all(run.instructions for run in runs)
    found = kernels_neuron.report(model)
    assert found.module_share == found.flop_share == 1
    assert all(row.kernel_digest and row.kernel_version == 1 for row in found.modules)
    assert (out.float() - expected).norm() / expected.norm() < LOGITS[dtype]
    checked = kernels_neuron.check_model(model, images.to(dtype))
    assert checked.first_beyond(LAYERS[dtype]) is None
    assert checked.output_rel_l2 < LOGITS[dtype]


@pytest.mark.slow
def test_training_runs_no_kernel_and_a_gradient_asked_of_one_is_refused(make_vit, images):
    plain, model = make_vit(hidden_size=64).train(), kernels_neuron.kernelize(make_vit(hidden_size=64).train())
    labels = torch.tensor([1, 2, 3])
    with using(arch="trn2") as runs:
        losses = [m(images, labels=labels).loss for m in (plain, model)]
        for loss in losses:
            loss.backward()
    assert not runs
    assert torch.equal(*losses)
    for (name, ours), (_, theirs) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        assert (ours.grad is None and theirs.grad is None) or torch.equal(ours.grad, theirs.grad), name
    model.eval()
    with pytest.raises(RuntimeError, match="has no backward on neuron"):
        model(images).logits.sum().backward()


@pytest.mark.slow
def test_undo_frees_the_copies_of_weights_that_kernels_keep(make_vit, images):
    model = kernels_neuron.kernelize(make_vit(hidden_size=64))

    def with_copies():
        names = {name for parameter in model.parameters() for name in vars(parameter)}
        return {name for name in names if name.endswith("::kept_weights")}

    with torch.no_grad():
        model(images)
    assert len(with_copies()) == 2  # of gemm and of patch_embed
    kernels_neuron.unkernelize(model)
    assert not with_copies()
