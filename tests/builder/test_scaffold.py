import importlib.util
import sys
import tomllib

import pytest
import torch

from kernels_neuron.artifact import import_variant
from kernels_neuron.builder import build, check, scaffold
from kernels_neuron.errors import UsageError
from kernels_neuron.manifest import Manifest
from kernels_neuron.spec import Spec

CASES = [(dtype, lnc) for dtype in ("float32", "bfloat16", "float16") for lnc in (1, 2)]


def test_a_new_project_gets_a_manifest_and_common(tmp_path):
    folder = scaffold("my_gelu", tmp_path)
    assert folder == tmp_path / "nki_src" / "my_gelu"
    manifest = Manifest.read(tmp_path / "kernel.toml")
    assert manifest.kernels["my_gelu"].repo == "neuron-my-gelu"
    assert (tmp_path / "nki_src" / "common" / "checks.py").is_file()


def test_a_kernel_is_added_to_an_existing_project_without_touching_its_text(tmp_path):
    scaffold("one", tmp_path)
    before = (tmp_path / "kernel.toml").read_text() + "# a comment of mine\n"
    (tmp_path / "kernel.toml").write_text(before)
    (tmp_path / "nki_src" / "common" / "checks.py").write_text("# mine\n")
    scaffold("two", tmp_path / "nki_src" / "one")
    after = (tmp_path / "kernel.toml").read_text()
    assert after.startswith(before)
    assert list(tomllib.loads(after)["kernels"]) == ["one", "two"]
    assert (tmp_path / "nki_src" / "common" / "checks.py").read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("My-Gelu", "my_gelu"), ("2fast", "fast"), ("common", "my_kernel"), ("class", "my_kernel"), ("", "my_kernel")],
)
def test_a_name_that_cannot_be_is_refused_with_one_that_can(tmp_path, name, hint):
    with pytest.raises(UsageError, match="a kernel name is lower-case") as caught:
        scaffold(name, tmp_path)
    assert caught.value.hint == f"`kernels-neuron new {hint}`"
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_refused(tmp_path):
    scaffold("one", tmp_path)
    with pytest.raises(UsageError, match="exists"):
        scaffold("one", tmp_path)
    before = (tmp_path / "kernel.toml").read_text()
    (tmp_path / "kernel.toml").write_text(
        before + '[kernels.gone]\nrepo = "neuron-gone"\nversion = 1\nlicense = "mit"\n'
    )
    with pytest.raises(UsageError, match="has a kernel gone or a repo neuron-gone"):
        scaffold("gone", tmp_path)
    assert not (tmp_path / "nki_src" / "gone").exists()


def test_the_scaffold_builds_and_checks(project):
    build(project)
    assert check(project) == []


@pytest.mark.parametrize(("dtype", "lnc"), CASES, ids=[f"{dtype}-lnc{lnc}" for dtype, lnc in CASES])
def test_the_scaffold_verifies(project, monkeypatch, dtype, lnc):
    from kernels_neuron.sim.context import using
    from kernels_neuron.sim.shim import install

    install()
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", str(lnc))
    (built,) = build(project)
    kernel = import_variant(built.variants["torch-neuron"]).halve
    reference = import_variant(built.variants["torch-cpu"]).halve
    truth = sys.modules[f"{reference.__module__.rpartition('.')[0]}.reference"].halve
    for case in Spec.read(project.kernels["halve"].folder).cases(dtype, "test"):
        inputs = case.make_inputs()
        with using(arch="trn2") as runs:
            out = case.call(kernel, inputs)
        held = case.compare(truth, inputs, out)
        assert held.ok, (str(case), held)
        assert sum(run.instructions for run in runs) > 0
        assert runs[0].lnc == lnc


def test_the_scaffold_has_gradients_and_passes_opcheck(project):
    from kernels_neuron.sim.shim import install

    install()
    (built,) = build(project)
    module = import_variant(built.variants["torch-neuron"])
    x = torch.randn(5, 3, requires_grad=True)
    module.halve(x.T, 0.5).sum().backward()
    assert x.grad.eq(0.5).all()
    torch.library.opcheck(getattr(torch.ops, module.__name__).halve, (torch.randn(5, 3), 0.5))


def test_the_benchmark_of_the_scaffold_runs_and_agrees_with_pytorch(project):
    (built,) = build(project)
    spec = importlib.util.spec_from_file_location("scaffold_benchmark", built.root / "benchmarks" / "benchmark.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    benchmark = module.HalveBenchmark()
    benchmark.kernel, benchmark.device = import_variant(built.variants["torch-cpu"]), "cpu"
    benchmark.setup_large()
    benchmark.benchmark_large()
    torch.testing.assert_close(benchmark.out, benchmark.verify_large())
