"""The pages for people: what they list, what they hide, and how they look in a browser."""

import http.client
import re
import shutil
import subprocess

import pytest

from kernels_neuron.hub.upload import connect, read_release, upload

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVIL = '---\nlicense: mit\n---\n# neuron-double\n\n<script>document.title = "ran"</script> {{ 7 * 7 }} & <b>'


def page(server, path: str, token: str | None = None) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.headers)


@pytest.fixture
def filled(server, build):
    api = connect(server.url, server.token)
    upload(api, read_release(build(backends=("cpu", "neuron"))), "org")
    folder = build(version=2, factor=4, backends=("cpu", "neuron"))
    (folder / "README.md").write_text(EVIL)
    upload(api, read_release(folder), "org")
    upload(api, read_release(build("neuron-hidden")), "org", private=True)
    return server


def test_the_first_page_lists_kernels_versions_variants_and_downloads(filled):
    status, text, headers = page(filled, "/")
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "org/neuron-double" in text and "v1, v2" in text and "torch-cpu, torch-neuron" in text
    assert "neuron-hidden" not in text
    assert "neuron-hidden" in page(filled, "/", filled.token)[1]


def test_a_kernels_page_shows_versions_downloads_and_the_card_as_text(filled):
    status, text, _ = page(filled, "/kernels/org/neuron-double")
    assert status == 200
    assert 'kernels.get_kernel("org/neuron-double", version=2)' in text
    assert re.search(r"<tr><td>v1</td><td>torch-cpu, torch-neuron</td>", text)
    assert "<script>" not in text and "&lt;script&gt;" in text and "{{ 7 * 7 }}" in text
    assert "license: mit" not in text, "the front matter is for machines"
    assert re.search(r"<td>torch-cpu</td><td class=\"number\">\d+</td>", text)


def test_a_private_or_missing_kernel_has_no_page(filled):
    assert page(filled, "/kernels/org/neuron-hidden")[0] == 401
    assert page(filled, "/kernels/org/nope")[0] == 401
    assert page(filled, "/kernels/org/neuron-hidden", filled.token)[0] == 200


def test_an_empty_registry_says_how_to_fill_it(server):
    assert f"kernels-neuron publish --to {server.url}" in page(server, "/")[1]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_a_browser_shows_the_pages_and_runs_nothing_of_a_card(filled, tmp_path):
    def browse(*argv: str) -> str:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        done = subprocess.run([CHROMIUM, *options, *argv], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    home = browse("--dump-dom", f"{filled.url}/")
    assert "org/neuron-double" in home and "1 repo at" in home
    kernel = browse("--dump-dom", f"{filled.url}/kernels/org/neuron-double")
    assert "<title>org/neuron-double</title>" in kernel and "<title>ran</title>" not in kernel
    for name, path in (("home", "/"), ("kernel", "/kernels/org/neuron-double")):
        browse(f"--screenshot={tmp_path / name}.png", "--window-size=1000,900", f"{filled.url}{path}")
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000
