"""How fast the registry serves files, next to Starlette's StaticFiles under the same uvicorn.

Each server runs in a process of its own and so does the load, `wrk` (Debian's package), with keep-alive. The two are
measured in turn, several times, and the medians compared; what else runs on the machine then hits both.

    python bench/registry_throughput.py --seconds 10 --rounds 3 --out bench/results/registry_throughput.json
"""

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from results_file import environment, write

from kernels_neuron.hub.store import Message, Put, Store

FILES = 20
SIZES = (200, 1_000, 4_000, 16_000)  # of a kernel's files, in turn
REGISTRY = "from kernels_neuron.cli.main import main; main(['registry', 'serve', '--root', {root!r}, '--port', '0'])"
STATIC = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
sock.bind(("127.0.0.1", 0)); sock.listen(1024)
print(f"http://127.0.0.1:{{sock.getsockname()[1]}}", flush=True)
app = Starlette(routes=[Mount("/files", StaticFiles(directory={root!r}))])
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")).run(sockets=[sock])
"""
LUA = """
local paths = {{{paths}}}
local i = 0
request = function() i = i % #paths + 1; return wrk.format("GET", paths[i]) end
done = function(summary, latency, requests)
  io.write(string.format("P99_US %d\\n", latency:percentile(99)))
  io.write(string.format("ERRORS %d\\n", summary.errors.status + summary.errors.read + summary.errors.timeout))
end
"""


def fill(root: Path) -> tuple[Store, Path]:
    """The same files in a registry, and as plain files."""
    contents = {f"build/torch-cpu/f{i}.py": bytes([97 + i]) * SIZES[i % len(SIZES)] for i in range(FILES)}
    store = Store(root / "registry")
    store.create("org/k", author="bench")
    with store.blobs.batch() as batch:
        store.add_commit(
            "org/k", "main", [Put(p, batch.put(data)) for p, data in contents.items()], Message("m", "bench")
        )
    for path, data in contents.items():
        (root / "static" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "static" / path).write_bytes(data)
    return store, root / "static"


def start(code: str) -> tuple[subprocess.Popen, str]:
    """A server in a process of its own, and the URL it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def load(url: str, paths: list[str], script: Path, seconds: int) -> dict[str, float]:
    """One run of wrk over these paths; any error ends the measurement."""
    script.write_text(LUA.format(paths=", ".join(f'"{path}"' for path in paths)))
    argv = ["wrk", "-t1", "-c16", f"-d{seconds}s", "--latency", "-s", str(script), url]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = {key: float(re.search(pattern, said)[1]) for key, pattern in {
        "requests_per_s": r"Requests/sec:\s+([\d.]+)", "p99_us": r"P99_US (\d+)", "errors": r"ERRORS (\d+)",
    }.items()}  # fmt: skip
    assert found["errors"] == 0, said
    return found


def main() -> None:
    """Measure and print one JSON value."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the result there too")
    wanted = parser.parse_args()
    where = environment("uvicorn", "starlette")
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        store, static = fill(Path(folder))
        commit = store.repo("org/k").branches["main"]
        names = [f"build/torch-cpu/f{i}.py" for i in range(FILES)]
        paths = {
            "registry": [f"/kernels/org/k/resolve/{commit}/{name}" for name in names],
            "static": [f"/files/{name}" for name in names],
        }
        servers = {
            "registry": start(REGISTRY.format(root=str(store.root))),
            "static": start(STATIC.format(root=str(static))),
        }
        rows: dict[str, list[dict[str, float]]] = {"registry": [], "static": []}
        try:
            for _ in range(wanted.rounds):
                for name, (_, url) in servers.items():
                    rows[name].append(load(url, paths[name], Path(folder) / "load.lua", wanted.seconds))
        finally:
            for process, _ in servers.values():
                process.kill()
    medians = {
        name: {key: statistics.median(row[key] for row in each) for key in each[0]} for name, each in rows.items()
    }
    ratio = medians["registry"]["requests_per_s"] / medians["static"]["requests_per_s"]
    row = {"seconds": wanted.seconds, "rounds": wanted.rounds, "medians": medians, "runs": rows}
    write(wanted.out, {**row, "registry_over_static": round(ratio, 3), "environment": where})


if __name__ == "__main__":
    main()
