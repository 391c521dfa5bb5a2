"""The harness for tutorials and documentation samples, on pages of our own."""

import json
from pathlib import Path

import numpy as np
import pytest
import sample_cases
import samples

PAGE = """Title

.. code-block:: python
   :caption: add

   @nki.jit
   def double(x):
       out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
       tile = nl.load(x)
       nl.store(out, nl.add(tile, tile))
       return out

Text.

.. code-block::

   @nki.jit
   def double(x):
       return nl.load(x)

.. code-block:: bash

   nki.jit
"""


def outcome(tmp_path: Path, sample: sample_cases.Sample):
    page = tmp_path / "page.rst"
    page.write_text(PAGE)
    code = samples.source_of(page, sample)
    return samples.judged(page, code, sample, "page.rst:double")


def sample(**changes):
    given = {
        "path": "page.rst",
        "function": "double",
        "inputs": sample_cases.normal((4, 8)),
        "reference": lambda x: 2 * x,
    }
    return sample_cases.Sample(**(given | changes))


def test_the_code_blocks_of_a_page_are_found():
    first, second = samples.blocks(PAGE)
    assert (
        first.strip().startswith("@nki.jit\ndef double")
        and second.strip().startswith("@nki.jit")
        and ":caption:" not in first
    )
    assert samples.defines(first, "double") and not samples.defines(first, "doub")


def test_a_sample_that_gives_what_the_formula_gives_passes(tmp_path):
    found = outcome(tmp_path, sample())
    assert found.ok and found.error is None and found.instructions == 3


def test_a_wrong_result_is_a_mismatch(tmp_path):
    found = outcome(tmp_path, sample(reference=lambda x: 3 * x))
    assert not found.ok and found.error == "mismatch"


def test_a_refusal_is_the_rule_it_broke(tmp_path):
    found = outcome(tmp_path, sample(block=1))
    assert not found.ok and found.error == "output-buffer"


def test_a_page_without_the_block_has_no_sample(tmp_path):
    (tmp_path / "page.rst").write_text(PAGE)
    assert samples.source_of(tmp_path / "page.rst", sample(block=2)) is None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"ok": True, "switches": {}}, "passes"),
        ({"ok": True, "switches": {"output_buffer": "hbm"}}, "passes with output_buffer=hbm"),
        ({"ok": False, "error": "output-buffer", "message": "a | b\nc"}, "output-buffer: a \\| b"),
        ({"ok": False, "error": "NameError", "broken": "no such name"}, "fails, as it must: no such name"),
        ({"ok": True, "broken": "no such name", "switches": {}}, "ran, and must not"),
    ],
)
def test_each_outcome_has_its_words(row, words):
    assert samples.verdict(row) == words


def test_the_section_counts_what_is_meant_to_run():
    rows = [
        {"id": "facts", "clone": "sdk", "commit": "abc", "neuronxcc files": 3, "fragments": 4},
        {"id": "a", "clone": "sdk", "arch": "trn2", "ok": True, "switches": {}, "instructions": 5},
        {"id": "b", "clone": "sdk", "arch": "trn2", "ok": False, "error": "SyntaxError", "broken": "is not Python"},
    ]
    text = samples.section(rows)
    assert "1 of 1 samples" in text and "1 that cannot run" in text and "| sdk | abc | 3 | 4 |" in text


def test_the_recorded_rows_pass_or_fail_as_they_must():
    rows = [json.loads(line) for line in samples.RESULTS.read_text().splitlines()]
    ran = [row for row in rows if row["id"] != "facts"]
    assert len(ran) > 50 and all(row["ok"] != bool(row["broken"]) for row in ran)


def test_inputs_are_the_same_every_time():
    first, second = (sample_cases.SAMPLES[0].inputs(np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
