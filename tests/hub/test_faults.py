"""What is left after a crash, a full disk, a torn file, a race: each tried a hundred times at random points."""

import base64
import http.client
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kernels_neuron.hub.serving import run_server
from kernels_neuron.hub.storage.damage import find_damage
from kernels_neuron.hub.store import Store

pytestmark = pytest.mark.slow

ROUNDS = 100
ZYGOTE = Path(__file__).with_name("zygote.py")
REPO = "org/k"


def body(files: dict[str, bytes], parent: str | None = None) -> bytes:
    lines = [
        {"key": "header", "value": {"summary": "m", "description": "", **({"parentCommit": parent} if parent else {})}}
    ]
    for path, data in files.items():
        content = base64.b64encode(data).decode()
        lines.append({"key": "file", "value": {"path": path, "content": content, "encoding": "base64"}})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def send(url: str, token: str, data: bytes, branch: str = "main") -> tuple[int, dict]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        headers = {"Authorization": f"Bearer {token}"}
        connection.request("POST", f"/api/kernels/{REPO}/commit/{branch}", data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def some_files(rng: random.Random, mark: str, count: int = 8) -> dict[str, bytes]:
    """Files that belong together: each holds the commit's mark, so that a mixture of two commits shows."""
    return {f"d/{i}.bin": f"{mark} {i} ".encode() + rng.randbytes(rng.choice((10, 3000, 40_000))) for i in range(count)}


def marks(store: Store, ref: str = "main") -> set[str]:
    files = store.commit(store.repo(REPO), ref).files
    return {store.blobs.path(blob.sha256).read_bytes().split(b" ")[0].decode() for blob in files.values()}


@contextmanager
def zygote(*argv: str) -> Iterator[subprocess.Popen]:
    with subprocess.Popen(
        [sys.executable, str(ZYGOTE), *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, bufsize=1,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def ask(process: subprocess.Popen, line: str = "") -> list:
    process.stdin.write(line + "\n")
    process.stdin.flush()
    while (answer := json.loads(process.stdout.readline()))[0] == "done":
        pass  # an earlier child came through before it was killed
    return answer


def seconds_of(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.002)


def test_a_server_killed_during_a_commit_loses_nothing_it_acknowledged_and_shows_no_half(tmp_path):
    rng = random.Random(5)
    store = Store(tmp_path)
    token = store.tokens.add("tester", {"*": "write"}, "now")
    store.create(REPO, author="tester")
    acknowledged: list[str] = []
    killed_in_flight = 0
    with zygote("server", str(tmp_path)) as parent:
        pid, url = ask(parent)
        window = seconds_of(lambda: send(url, token, body(some_files(rng, "first"))))
        for turn in range(ROUNDS):
            done: list[str] = []

            def commit_until_it_dies(url: str = url, turn: int = turn, done: list[str] = done) -> None:
                with suppress(OSError, http.client.HTTPException, ValueError):
                    for i in range(50):
                        status, answer = send(url, token, body(some_files(random.Random(turn * 99 + i), f"{turn}.{i}")))
                        assert status == 200, answer
                        done.append(answer["commitOid"])

            client = threading.Thread(target=commit_until_it_dies)
            client.start()
            time.sleep(rng.uniform(0.0, 3 * window))
            kill(pid)
            client.join()
            acknowledged += done
            pid, url = ask(parent)
            head = store.commit(store.repo(REPO), "main")
            assert len(marks(store)) == 1, "the files of the head are of one commit"
            if done:
                history = [commit.id for commit in store.history(store.repo(REPO), "main")]
                assert done[-1] in history[:2], "at most the one in flight lies on top of the last acknowledged"
                killed_in_flight += history[0] != done[-1]
            assert head.files
            assert list((tmp_path / "scratch").iterdir()) == [], "a start removes what was half-written"
        kill(pid)
    history = {commit.id for commit in store.history(store.repo(REPO), "main")}
    assert acknowledged and set(acknowledged) <= history
    assert find_damage(store) == []
    print(f"{len(acknowledged)} commits acknowledged, {killed_in_flight} more were whole without having been answered")


def test_a_client_killed_during_an_upload_leaves_the_branch_as_it_was_or_as_it_wanted(tmp_path):
    rng = random.Random(6)
    with run_server(tmp_path / "registry") as server, zygote("client") as parent:
        store = server.store
        store.create(REPO, author="tester")
        send(server.url, server.token, body({"d/0.bin": b"first 0"}))
        finished = 0
        window = 1.0
        for turn in range(ROUNDS):
            before = store.commit(store.repo(REPO), "main").id
            folder = tmp_path / f"up{turn}"
            for name, data in some_files(rng, f"up{turn}").items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
            job = {"url": server.url, "token": server.token, "folder": str(folder), "repo": REPO, "branch": "main"}
            _, pid = ask(parent, json.dumps(job))
            if turn == 0:  # this one is let through, to know how long an upload takes here
                window = seconds_of(lambda: parent.stdout.readline())
            time.sleep(rng.uniform(0.1, 1.3) * window if turn else 0.0)
            kill(pid)
            # a body that was read whole may still become a commit, and the one before may have been late
            new = list(
                itertools.takewhile(
                    lambda commit, before=before: commit.id != before, store.history(store.repo(REPO), "main")
                )
            )
            assert len(new) <= 2
            finished += len(new)
            assert len(marks(store)) == 1
        assert find_damage(store) == []
    assert finished < ROUNDS, "some were cut off"
    print(f"{finished} of {ROUNDS} uploads came through before the kill")


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a small tmpfs takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_the_commit_and_keeps_what_was_there(small_disk):
    rng = random.Random(7)
    with run_server(small_disk / "registry") as server:
        store, filler = server.store, small_disk / "filler"
        store.create(REPO, author="tester")
        assert send(server.url, server.token, body({"d/0.bin": b"first 0"}))[0] == 200
        refused = 0
        for turn in range(ROUNDS):
            before = store.commit(store.repo(REPO), "main").id
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            with suppress(OSError), filler.open("wb") as file:
                file.write(b"x" * max(0, free - rng.randrange(0, 120_000)))
            files = {f"d/{i}.bin": f"t{turn} {i} ".encode() + rng.randbytes(rng.choice((10, 9000))) for i in range(6)}
            status, answer = send(server.url, server.token, body(files))
            filler.unlink()
            head = store.commit(store.repo(REPO), "main")
            assert status in (200, 507), answer
            assert (head.id == answer["commitOid"]) if status == 200 else (head.id == before)
            assert len(marks(store)) == 1
            refused += status == 507
            if turn % 10 == 9:  # a history this long would fill the disk by itself
                store.delete(REPO)
                for path in list(store.blobs):
                    path.unlink()
                store.create(REPO, author="tester")
                assert send(server.url, server.token, body({"d/0.bin": b"first 0"}))[0] == 200
        assert find_damage(store) == []
        assert 10 < refused < ROUNDS, "both outcomes were tried"
    print(f"{refused} of {ROUNDS} commits met a full disk")


def test_a_truncated_content_is_never_served_and_is_named_exactly(tmp_path):
    rng = random.Random(8)
    with run_server(tmp_path) as server:
        store = server.store
        store.create(REPO, author="tester")
        send(server.url, server.token, body(some_files(rng, "whole", 20)))
        files = store.commit(store.repo(REPO), "main").files
        for _ in range(ROUNDS):
            path = rng.choice(sorted(files))
            place = store.blobs.path(files[path].sha256)
            data = place.read_bytes()
            place.write_bytes(data[: rng.randrange(len(data))])
            damage = find_damage(store)
            assert len(damage) == 1 and path in damage[0] and files[path].sha256 in damage[0]
            connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
            connection.request("GET", f"/kernels/{REPO}/resolve/main/{path}")
            answer = connection.getresponse()
            assert answer.status == 410 and b"registry verify" in answer.read()
            place.write_bytes(data)
        assert find_damage(store) == []


def test_of_two_publishers_at_once_one_wins_and_the_other_is_told(tmp_path):
    rng = random.Random(9)
    with run_server(tmp_path) as server:
        store = server.store
        store.create(REPO, author="tester")
        for turn in range(ROUNDS):
            parent = store.repo(REPO).branches["main"]
            both = [body(some_files(rng, f"{turn}{who}", 4), parent) for who in "ab"]
            statuses: list[int] = []
            barrier = threading.Barrier(2)

            def publish(data: bytes, statuses: list[int] = statuses, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                statuses.append(send(server.url, server.token, data)[0])

            racers = [threading.Thread(target=publish, args=(data,)) for data in both]
            for racer in racers:
                racer.start()
            for racer in racers:
                racer.join()
            assert sorted(statuses) == [200, 412]
            assert len(marks(store)) == 1
            assert store.commit(store.repo(REPO), "main").parent == parent
        assert find_damage(store) == []
