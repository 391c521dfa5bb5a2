"""The operators of every kernel, played from their programs: the same bits as their Python gives, and its trace."""

from pathlib import Path

import pytest
import torch

from kernels_neuron.artifact import import_variant
from kernels_neuron.builder import build
from kernels_neuron.manifest import Manifest
from kernels_neuron.measure.cases import Filter, tasks
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using

ROOT = Path(__file__).parents[2]
KERNELS = ("gemm", "layernorm", "patch_embed", "vit_attn")


@pytest.fixture(scope="module")
def manifest():
    return Manifest.read(ROOT / "kernel.toml")


@pytest.fixture(scope="module")
def variants(manifest, tmp_path_factory):
    return {
        built.name: built.variants["torch-neuron"] for built in build(manifest, out=tmp_path_factory.mktemp("build"))
    }


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_played_operator_gives_the_bits_of_its_kernel(manifest, variants, kernel):
    options = {"archs": ["trn2"], "lncs": [1], "dtypes": ["float32", "bfloat16"]}
    checked = 0
    for task in tasks(manifest.select([kernel]), variants, "test", Filter.of(**options)):
        case = task.case
        entry = getattr(import_variant(task.variant), case.entry)
        inputs = case.make_inputs()
        outs, found = [], []
        with torch.no_grad():
            for reuse in (False, True, True):
                with using(task.arch, Settings(reuse=reuse)) as runs:
                    outs.append(case.call(entry, inputs))
                found.append(runs)
        for out in outs[1:]:
            assert torch.equal(out.view(torch.uint8), outs[0].view(torch.uint8)), str(task)
        assert len({run.instructions for runs in found for run in runs}) == len(found[0])
        # the second of two played launches has the trace of the first
        assert [run.traces[0] is again.traces[0] for run, again in zip(*found[1:], strict=True)] == [True] * len(
            found[1]
        )
        checked += 1
    assert checked >= 10
