"""The pages of a bench and of a validation: every row with its numbers, who says them, and pictures that hold them."""

import re
from xml.etree import ElementTree

import pytest

from kernels_neuron.flows.bench_figures import colours, groups, kernels_roofline, numbered, ranges
from kernels_neuron.flows.bench_html import render, render_validation
from kernels_neuron.flows.results import environment
from kernels_neuron.flows.validation_figures import SIDE, kinds, scatters, steps
from kernels_neuron.measure.bench import BenchRow
from kernels_neuron.measure.validation import Ladder, Measurement, ValidationRow

ENVIRONMENT = {
    "commit": "abc",
    "dirty": False,
    "date": "2026-11-30",
    "versions": {"torch": "2.13.0"},
    "settings": {"arch": ["trn2"]},
}


def row(kernel="gemm", workload="square", dtype="bfloat16", arch="trn2", lnc=1, speedup=1.5, **other) -> BenchRow:
    numbers = {"body_us": 100.0, "launch_us": 8.5, "estimated_us": 108.5, "estimated_low_us": 106.5}
    numbers |= {"estimated_high_us": 110.5, "bound_us": 50.0, "body_over_bound": 2.0, "baseline_us": 100.0 * speedup}
    numbers |= {"speedup": speedup, "speedup_low": 0.98 * speedup, "speedup_high": 1.02 * speedup}
    numbers |= {"speedup_with_launch": speedup, "flops": 2e9, "hbm_bytes": 10_000_000}
    return BenchRow(kernel, workload, dtype, arch, lnc, ok=True, **(numbers | other))


ROWS = [
    row(),
    row(dtype="float32", speedup=0.7),
    row("layernorm", "rows", speedup=0.5),
    row(arch="trn3"),
    row(lnc=2, speedup=2.5),
]


def pictures(page):
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_the_page_of_a_bench_stands_alone_and_has_every_row_with_its_numbers():
    page = render(ROWS, {}, ENVIRONMENT)
    assert not re.search(r'(src|href)="|@import|url\(', page)
    assert page.count('<tr><td class="number">') + page.count('<tr class="first"><td class="number">') == len(ROWS)
    for number in ("108.5", "106.5", "110.5", "50.0", "2.00", "150.0", "1.50", "1.47", "1.53"):
        assert f'<td class="number">{number}</td>' in page
    assert "5 of 5 rows equal their PyTorch reference" in page
    assert page == render(ROWS, {}, ENVIRONMENT)


def test_every_number_is_called_estimated_and_a_chip_without_measurements_says_so():
    page = render(ROWS, {}, ENVIRONMENT)
    assert "Every time on this page is estimated" in page and "nothing was measured on a device" in page
    assert "measured on a device</th>" not in page
    assert "<h2>trn3, 1 core, unvalidated</h2>" in page and "<h2>trn2, 2 cores</h2>" in page


def test_measured_times_have_columns_of_their_own():
    timed = row(measured_us=123.4, measured_min_us=120.1, measured_max_us=130.9, measured_count=100)
    page = render([timed], {}, ENVIRONMENT)
    assert "measured on a device</th>" in page and "123.4" in page and "130.9" in page
    assert "nothing was measured" not in page and 'Times in the columns "measured"' in page


def test_what_is_laid_out_once_stands_apart_where_there_is_any():
    assert ">once us<" not in render(ROWS, {}, ENVIRONMENT)
    page = render([row(once_us=12.3)], {}, ENVIRONMENT)
    assert ">once us<" in page and '<td class="number">12.3</td>' in page


def test_a_row_that_misses_its_reference_has_no_time_and_its_reason():
    bad = BenchRow("gemm", "square", "bfloat16", "trn2", 1, ok=False, problem="error <2> times what is allowed")
    page = render([*ROWS[1:], bad], {}, ENVIRONMENT)
    assert "4 of 5 rows" in page and "error &lt;2&gt; times what is allowed" in page
    assert ranges(groups([bad])[0], [bad], {}) is None and "no time" in render([bad], {}, ENVIRONMENT)


def test_chips_that_a_kernel_is_not_made_for_are_named():
    page = render(ROWS, {"trn1": ["gemm", "layernorm"]}, ENVIRONMENT)
    assert "trn1 is missing for gemm, layernorm" in page


def test_the_foot_says_what_the_numbers_were_made_from():
    foot = render(ROWS, {}, ENVIRONMENT).partition("Made from")[2]
    assert "abc" in foot and "torch 2.13.0" in foot and "2026-11-30" in foot and "arch trn2" in foot
    assert {"commit", "dirty", "date", "versions", "machine", "settings"} == set(environment({}))
    assert {"kernels-neuron", "torch", "numpy", "python", "nki"} == set(environment({})["versions"])


def test_ranges_stand_on_one_axis_with_one_at_the_same_place():
    found = groups(ROWS)
    assert [group.title for group in found] == ["trn2, 1 core", "trn2, 2 cores", "trn3, 1 core"]
    drawn = [ranges(group, ROWS, colours([each.dtype for each in ROWS])) for group in found]
    assert len({each.one for each in drawn}) == 1
    for each in drawn:
        assert all(0 <= span.low <= span.middle <= span.high <= each.width for span in each.spans)
    [slow] = [span for span in drawn[0].spans if "float32" in span.text]
    assert slow.middle < drawn[0].one < drawn[1].spans[0].middle
    assert len(drawn[0].labels) == 2 and len(drawn[0].spans) == 3


def test_a_kernel_stands_on_the_roofline_by_its_useful_work_under_a_number_that_is_the_same_on_every_chip():
    numbers = numbered(ROWS)
    drawn = [kernels_roofline(group, numbers, colours([each.kernel for each in ROWS])) for group in groups(ROWS)]
    point = drawn[0].points[0]
    assert (point.per_byte, point.gops) == (pytest.approx(200.0), pytest.approx(20_000.0))
    assert {each.points[0].mark for each in drawn} == {"1"}
    assert [name for name, _ in drawn[0].roofs] == ["TensorE, bfloat16", "TensorE, float32"]


def test_every_picture_of_both_pages_is_well_formed():
    page = render(ROWS, {}, ENVIRONMENT)
    labels = [picture.get("aria-label") for picture in pictures(page)]
    assert labels[:3] == ["speedups on trn2, 1 core", "speedups on trn2, 2 cores", "speedups on trn3, 1 core"]
    assert labels.count("roofline") == 3


def measured(name, us, estimate, within=0.1, **other) -> ValidationRow:
    spread = (None, None) if estimate is None else (estimate * 0.97, estimate * 1.03)
    return ValidationRow(
        Measurement(name, "matmul", "1x1", "trn2", "body", us, within=within, **other), estimate, *spread
    )


VALIDATED = [
    measured("a", 100.0, 104.0),
    measured("b", 10.0, 10.5, within=None, note="an older compiler"),
    measured("c", 1000.0, 1300.0),
    measured("d", 50.0, None),
    measured("e", 70.0, 700.0, within=None),
]


def test_measured_and_estimated_stand_on_a_line_with_bars_for_their_range():
    estimates, ratios = scatters(VALIDATED)
    assert len(estimates.dots) == 4 and estimates.line == (SIDE, 0.0)
    [dot] = [dot for dot in estimates.dots if dot.text.startswith("a,")]
    assert dot.high < dot.y < dot.low and dot.y == pytest.approx(SIDE - dot.x, rel=0.05)
    [far] = [dot for dot in ratios.dots if dot.text.startswith("e,")]
    assert far.y == far.high == pytest.approx(0.0)  # ten times the measurement: at the edge
    assert kinds(VALIDATED) == [(0, "within its bound", 1), (3, "beyond its bound", 1), (7, "only reported", 2)]
    assert scatters([VALIDATED[3]]) == []


def test_a_ladder_has_its_steps_in_order_and_its_exceptions():
    ladder = Ladder("matmul", ("c", "a", "d", "b"), {("b", "a"): "its compiler moved loads"})
    drawn = steps(ladder, VALIDATED, [])
    assert [text for _, text in drawn.ids] == ["1", "2", "3"]  # d has no estimate
    assert [y for _, y in drawn.measured] == sorted(y for _, y in drawn.measured)
    assert drawn.note == "in order, but for the exceptions below" and "b, excepted: its compiler" in drawn.excepted[0]
    assert steps(ladder, VALIDATED, [("a", "c")]).note == "out of order: a and c"


def test_the_page_of_a_validation_has_every_measurement_and_why_one_is_only_reported():
    page = render_validation(VALIDATED, [Ladder("matmul", ("c", "a", "b"), {})], ENVIRONMENT)
    assert not re.search(r'(src|href)="|@import|url\(', page)
    for text in ("+4.0 %", "+30.0 %", "MISS", "an older compiler", "1 of 2 measurements within their bound"):
        assert text in page
    assert [picture.get("aria-label") for picture in pictures(page)] == [
        "measured, estimated us",
        "measured, estimated over measured, less one",
        "ladder matmul",
    ]
