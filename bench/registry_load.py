"""Many real clients at once: each fetches a kernel of 20 files into an empty cache of its own, again and again.

The clients are huggingface_hub, unmodified, in processes forked from one that has imported it. Exits 1 on any error or
any file that is not what was published.

    python bench/registry_load.py --clients 50 --fetches 2000 --out bench/results/registry_load.json
"""

import argparse
import hashlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results_file import environment, write

FILES = 20
REPO = "org/neuron-load"
SERVER = "from kernels_neuron.cli.main import main; main(['registry', 'serve', '--root', {root!r}, '--port', '0'])"


def fill(root: Path) -> str:
    """A registry with one kernel; the digest of all its files."""
    from kernels_neuron.hub.store import Message, Put, Store

    contents = {f"build/torch-cpu/f{i}.py": os.urandom(500 * (1 + i % 8)) for i in range(FILES)}
    store = Store(root)
    store.create(REPO, author="bench")
    store.create_branch(REPO, "v1")
    with store.blobs.batch() as batch:
        puts = [Put(path, batch.put(data)) for path, data in contents.items()]
        store.add_commit(REPO, "v1", puts, Message("m", "bench"))
    return digest(contents)


def digest(contents: dict[str, bytes]) -> str:
    """One SHA-256 over paths and bytes."""
    sha = hashlib.sha256()
    for path in sorted(contents):
        sha.update(path.encode() + b"\0" + contents[path])
    return sha.hexdigest()


def client(number: int, fetches: int, url: str, expected: str, results: "multiprocessing.Queue[list]") -> None:
    """Fetch the kernel `fetches` times and report how long each took, or what went wrong."""
    import huggingface_hub

    api = huggingface_hub.HfApi(url, token=False)
    took: list = []
    for _ in range(fetches):
        with tempfile.TemporaryDirectory() as cache:
            started = time.monotonic()
            try:
                place = Path(api.snapshot_download(REPO, repo_type="kernel", revision="v1", cache_dir=cache))
                found = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
                took.append(
                    time.monotonic() - started if digest(found) == expected else f"client {number}: other bytes"
                )
            except Exception as error:  # noqa: BLE001  # whatever it is, it is what this script looks for
                took.append(f"client {number}: {type(error).__name__}: {error}")
    results.put(took)


def main() -> int:
    """Run the load and print one JSON value."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--fetches", type=int, default=2000, help="of all clients together")
    parser.add_argument("--out", type=Path, help="write the result there too")
    wanted = parser.parse_args()
    where = environment("huggingface_hub", "uvicorn", "starlette")
    os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = f"{folder}/home"
        expected = fill(Path(folder) / "registry")
        code = SERVER.format(root=f"{folder}/registry")
        server = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        import huggingface_hub  # noqa: F401  # once, before the forks

        context = multiprocessing.get_context("fork")
        results: multiprocessing.Queue = context.Queue()
        share = [
            wanted.fetches // wanted.clients + (i < wanted.fetches % wanted.clients) for i in range(wanted.clients)
        ]
        started = time.monotonic()
        jobs = [context.Process(target=client, args=(i, n, url, expected, results)) for i, n in enumerate(share)]
        for job in jobs:
            job.start()
        took = [one for _ in jobs for one in results.get()]
        seconds = time.monotonic() - started
        server.kill()
    errors = [one for one in took if isinstance(one, str)]
    times = sorted(one for one in took if not isinstance(one, str))
    row = {"clients": wanted.clients, "fetches": len(took), "files": FILES, "seconds": round(seconds, 1)}
    if times:
        row |= {"median_s": round(times[len(times) // 2], 3), "p99_s": round(times[int(len(times) * 0.99)], 3)}
    write(wanted.out, {**row, "errors": len(errors), "first_errors": errors[:5], "environment": where})
    return 1 if errors or len(took) != wanted.fetches else 0


if __name__ == "__main__":
    sys.exit(main())
