"""Many real clients at once, and what the server's speed is next to StaticFiles: the scripts of bench/, in small."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"

pytestmark = pytest.mark.slow


def run(script: str, *argv: str) -> dict:
    done = subprocess.run([sys.executable, str(BENCH / script), *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_fifty_clients_fetch_a_kernel_of_twenty_files_without_an_error(tmp_path):
    row = run("registry_load.py", "--clients", "50", "--fetches", "100")
    assert (row["clients"], row["fetches"], row["files"], row["errors"]) == (50, 100, 20, 0)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="there is no wrk on this machine: apt-get install wrk")
def test_the_throughput_benchmark_serves_every_request(tmp_path):
    medians = run("registry_throughput.py", "--seconds", "1", "--rounds", "1")["medians"]
    assert all(row["errors"] == 0 and row["requests_per_s"] > 0 for row in medians.values())
