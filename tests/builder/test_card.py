import json

import pytest
from huggingface_hub.repocard import RepoCard

from kernels_neuron.builder import build
from kernels_neuron.errors import UsageError

ROW = {
    "kernel": "halve",
    "workload": "one_tile",
    "dtype": "float32",
    "arch": "trn2",
    "lnc": 1,
    "estimated_us": 12.34,
    "bound_us": 5.0,
    "speedup": 1.5,
    "measured_us": None,
    "validated": True,
}


@pytest.fixture
def card(project):
    (built,) = build(project)
    return (built.root / "README.md").read_text()


def test_the_card_has_the_front_matter_of_the_hub(card):
    data = RepoCard(card).data.to_dict()
    assert data["license"] == "apache-2.0"
    assert data["library_name"] == "kernels"
    assert "neuron" in data["tags"]


def test_the_card_names_functions_layers_dtypes_and_tolerances(card):
    assert 'get_kernel("OWNER/neuron-halve", version=1)' in card
    assert "- `halve(x, scale=1.0)`: y = scale * x, for x of any shape and strides." in card
    assert "- `Halve.forward(self, x)`: Replaces a module" in card
    assert "Dtypes: float32, bfloat16, float16." in card
    assert r"| bfloat16 | rtol 0.0078 + atol 0.0039 * max\|ref\| |" in card
    assert "kernels benchmark OWNER/neuron-halve" in card
    assert "Looser" not in card


def test_the_card_names_limits_and_what_is_loose(project, edit):
    loose = '[limits]\nH = [1, 8192]\n[tolerance]\nfloat32 = { rtol = 0.1, reason = "because" }\n[inputs]'
    edit("spec.toml", "[inputs]", loose)
    (built,) = build(project)
    card = (built.root / "README.md").read_text()
    assert "| H | 1 | 8192 |" in card
    assert "Looser than usual in float32: because." in card


def test_the_card_says_on_which_chip_which_nki_was_checked(project, edit):
    edit("spec.toml", "[inputs]", 'nki = ["0.6", "0.7"]\narchs = ["trn3"]\n[inputs]')
    (built,) = build(project)
    card = (built.root / "README.md").read_text()
    assert "| chip | NKI 0.6 | NKI 0.7 |\n|---|---|---|\n| trn3 | checked | checked |\n" in card
    assert "trn2" not in card


@pytest.fixture
def card_with(project):
    """card_with(file=rows, ...): the card of a build beside these files in bench/results/."""

    def make(**files):
        folder = project.root / "bench" / "results"
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (folder / f"{name}.json").write_text(value if isinstance(value, str) else json.dumps(value))
        (built,) = build(project)
        return (built.root / "README.md").read_text()

    return make


def test_without_results_the_card_has_no_numbers_and_says_so(card):
    assert "Measured on a device: nothing yet." in card
    assert "no results were kept with this build" in card
    assert " us |" not in card


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def saved(*rows, dirty=False):
    """What `bench --save` writes."""
    return {"commit": COMMIT, "dirty": dirty, "date": "2026-11-30", "rows": list(rows)}


def test_estimated_and_measured_times_stand_apart_each_with_its_file_and_commit(card_with):
    on_device = {**ROW, "arch": "trn3", "measured_us": 20.25, "estimated_us": 18.0, "validated": False}
    other = {**ROW, "kernel": "other", "estimated_us": 99.9}
    card = card_with(model=saved(ROW, other), device=saved(on_device, dirty=True))
    measured, estimated = card.split("## How fast")[1].split("Estimated by a model of the machine")
    assert "| one_tile | float32 | trn3 | 1 | 20.2 | bench/results/device.json at 0123456 and changes |" in measured
    assert "12.3" not in measured and "20.2" not in estimated
    assert "| one_tile | float32 | trn2 | 1 | 12.3 | 5.0 | 1.50 | bench/results/model.json at 0123456 |" in estimated
    assert "; on trn3 the model is unvalidated:" in estimated and "99.9" not in card


def test_of_two_results_of_one_case_the_file_later_by_name_counts(card_with):
    card = card_with(a=saved(ROW), b=saved({**ROW, "estimated_us": 7.0}), other={"clients": 50})
    assert "| 7.0 | 5.0 | 1.50 | bench/results/b.json at 0123456 |" in card and "a.json" not in card
    assert "unvalidated" not in card


def test_a_number_without_a_commit_and_a_row_without_a_number_are_left_out(card_with):
    unknown = {**saved(ROW), "commit": None}
    card = card_with(a=[ROW], b=unknown, c=saved({**ROW, "estimated_us": None, "bound_us": None, "speedup": None}))
    assert "no results were kept with this build" in card


def test_results_that_cannot_be_read_are_refused_by_name(card_with):
    with pytest.raises(UsageError, match=r"bench/results/a\.json is not JSON"):
        card_with(a="{")
