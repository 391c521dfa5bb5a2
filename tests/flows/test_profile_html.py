"""The page of a profile: what it draws, that it stands alone, and that a browser shows it."""

import re
import shutil
import subprocess
from xml.etree import ElementTree

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from kernels_neuron.cost.profile import profile
from kernels_neuron.flows.profile_figures import KERNEL, Span, lanes, merge, roofline, ticks
from kernels_neuron.flows.profile_html import render
from kernels_neuron.flows.roofline import chart
from kernels_neuron.settings import Settings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@nki.jit
def product(a, b, repeats=1):
    """a.T @ b for a [128, 128], b [128, 512], over and over."""
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    for _ in range(repeats):
        bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank, stationary=left, moving=right)
        nisa.activation(dst=out, op=nl.exp, data=bank)
    y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=out)
    return y


@nki.jit
def moved(x):
    """x, through SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=tile)
    return y


@pytest.fixture(scope="module")
def found():
    return profile(product, np.ones((128, 128), np.float32), np.ones((128, 512), np.float32), repeats=3)


def pictures(page):
    """Every outermost svg of a page, parsed."""
    found = []
    for start in (match.start() for match in re.finditer(r"<svg", page)):
        for end in (match.end() for match in re.finditer(r"</svg>", page[start:])):
            piece = page[start : start + end]
            if piece.count("<svg") == piece.count("</svg>"):
                found.append(ElementTree.fromstring(piece))
                break
    return found


def test_the_page_stands_alone_and_says_that_nothing_was_measured(found):
    page = render(found)
    assert "nothing was measured on a device" in page
    assert not re.search(r'(src|href)="|@import|url\(', page)
    assert "prefers-color-scheme: dark" in page and page.count("<style>") == 1
    assert [picture.get("aria-label") for picture in pictures(page) if picture.get("aria-label")] == [
        "timeline",
        "roofline",
    ]


def test_the_page_escapes_the_name_of_the_kernel(found):
    import dataclasses

    page = render(dataclasses.replace(found, kernel="<b>evil</b>"))
    assert "<b>evil</b>" not in page


def test_the_timeline_has_a_track_an_engine_and_queue_and_every_instruction(found):
    drawn = lanes(found)
    assert [track.name for track in drawn.tracks] == ["tensor", "scalar", "sync", "scalar dma", "sync dma"]
    scalar = next(track for track in drawn.tracks if track.name == "scalar")
    assert sum(span.count for span in scalar.spans if span.name == "activation") == 3
    assert max(span.end for track in drawn.tracks for span in track.spans) == pytest.approx(drawn.body_us)
    assert {"activation", "nc_matmul", "dma_copy load"} <= {kind for _, kind in drawn.legend}


def test_short_neighbours_of_one_kind_are_drawn_as_one_and_long_ones_are_not():
    spans = [Span(i, i + 0.5, 0, "a", "k.py:1") for i in range(4)]
    assert [span.count for span in merge(spans, finest=1.0)] == [4]
    assert [span.count for span in merge([Span(i, i + 0.5, i % 2, "ab"[i % 2], "") for i in range(4)], 1.0)] == [1] * 4
    assert [span.count for span in merge([Span(i, i + 0.5, 0, "a", "") for i in range(4)], 0.1)] == [1] * 4


@pytest.mark.slow
def test_a_kernel_of_ten_thousand_instructions_is_drawn_in_few_blocks():
    a, b = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)
    found = profile(product, a, b, repeats=5000, settings=Settings(execute=False))
    drawn = lanes(found)
    assert found.instructions > 10_000
    assert drawn.merged and sum(len(track.spans) for track in drawn.tracks) < found.instructions


@pytest.mark.parametrize(("body", "last"), [(0.0, 0.0), (7.0, 7.0), (10.0, 10.0), (99.0, 90.0), (12345.0, 12000.0)])
def test_ticks_are_round_and_about_ten(body, last):
    assert ticks(body)[-1] == pytest.approx(last) and len(ticks(body)) <= 12


def test_the_kernel_and_its_lines_stand_under_their_roofs(found):
    drawn = roofline(found)
    assert [point.mark for point in drawn.points] == [KERNEL, *map(str, range(1, len(drawn.points)))]
    names = [point.name for point in drawn.points[1:]]
    assert any(name.startswith("tensor nc_matmul at") for name in names)
    assert any(name.startswith("scalar activation at") for name in names)
    assert all(point.gops <= drawn.roofs[0][1] for point in drawn.points)
    placed = chart(drawn)
    assert all(0 < mark.x < placed.width and 0 < mark.y < placed.height for mark in placed.marks)
    assert [mark.point for mark in placed.marks] == drawn.points


def test_a_kernel_that_only_moves_data_has_no_roofline():
    found = profile(moved, np.ones((128, 64), np.float32))
    assert chart(roofline(found)) is None and "it only moves data" in render(found)


def test_two_cores_have_their_own_tracks():
    @nki.jit
    def both(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        start = nl.program_id(0) * 128
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start : start + 128])
        nisa.dma_copy(dst=y[start : start + 128], src=tile)
        return y

    names = [track.name for track in lanes(profile(both[2], np.ones((256, 64), np.float32))).tracks]
    assert "core 0 sync dma" in names and "core 1 sync dma" in names


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_draws_the_page_and_its_script_runs(found, tmp_path):
    zoom = "document.getElementById('spans').dispatchEvent(new WheelEvent('wheel', {deltaY: -1, clientX: 400}))"
    page = render(found).replace("</body>", f"<script>{zoom}; document.title = 'zoomed'</script></body>")
    (tmp_path / "profile.html").write_text(page)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,2500"]
    url = (tmp_path / "profile.html").as_uri()
    dom = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=120, check=True).stdout
    assert "<title>zoomed</title>" in dom
    width = float(re.search(r'id="spans"[^>]*viewBox="\S+ 0 (\S+) ', dom)[1])
    assert width == pytest.approx(0.8 * lanes(found).body_us, rel=1e-3)
    picture = tmp_path / "profile.png"
    subprocess.run([*command, f"--screenshot={picture}", url], capture_output=True, timeout=120, check=True)
    assert picture.stat().st_size > 50_000
