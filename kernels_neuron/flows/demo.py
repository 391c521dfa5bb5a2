"""The main job, end to end: build, serve, publish, fetch, swap into a trained model, classify, compare, report."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from kernels_neuron.builder import build
from kernels_neuron.errors import KernelsNeuronError
from kernels_neuron.hub.serving import RunningServer, run_server
from kernels_neuron.hub.upload import connect, read_release, upload
from kernels_neuron.manifest import Manifest, installed_manifest

from .classify import Answer, Question
from .demo_report import DTYPES, LAYER_REL_L2, LOGITS_REL_L2, make_report
from .report_html import render

OWNER = "demo"
ARCH = "trn2"
BATCH = 120  # images in one call of the model

# settings of Hub tools that the consumer must not inherit: another machine would not have them
HUB_SETTINGS = ("HF_", "HUGGING_FACE_", "KERNELS_CACHE", "LOCAL_KERNELS", "USE_HUB_KERNELS")

# is told what is being done, how much of it is done, and how much there is (0: not a matter of counting)
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Demo:
    """What a demo found: report.json's content, and the files it wrote."""

    report: dict[str, Any]
    html: Path
    json: Path

    @property
    def ok(self) -> bool:
        """Whether predictions are equal and every number is within its limit."""
        return self.report["ok"]


def run_demo(out: Path, *, tell: Tell = lambda what, done, of: None) -> Demo:
    """Run the main job and write report.html and report.json into `out`.

    Everything else it makes (artifacts, a registry, a cache) lies in a temporary folder and goes with it. Refuses a
    folder that cannot be written before any work is done.
    """
    out.mkdir(parents=True, exist_ok=True)
    _require_writable(out)
    with tempfile.TemporaryDirectory(prefix="kernels-neuron-demo-") as folder:
        work = Path(folder)
        tell("build the kernels from nki_src", 0, 0)
        built = build(Manifest.read(installed_manifest()), out=work / "build")
        with run_server(work / "registry", user=OWNER) as server:
            tell(f"serve a registry at {server.url}", 0, 0)
            repos = {kernel.name: _publish(kernel.root, server, tell) for kernel in built}
            answers = _ask(repos, server.url, work / "cache", tell)
    report = make_report(answers, {"url": server.url, "repos": list(repos.values())}, {"chip": ARCH, "batch": BATCH})
    page = render(report, {"logits": LOGITS_REL_L2, "layers": LAYER_REL_L2})
    tell(f"write {out / 'report.html'} and report.json", 0, 0)
    html = _write(out / "report.html", page)
    return Demo(report, html, _write(out / "report.json", json.dumps(report, indent=2) + "\n"))


def _require_writable(out: Path) -> None:
    with tempfile.TemporaryFile(dir=out):
        pass


def _publish(folder: Path, server: RunningServer, tell: Tell) -> str:
    """Publish one built repo and return it as "owner/name@branch"."""
    published = upload(connect(server.url, server.token), read_release(folder), OWNER)
    tell(f"publish {published.repo_id} {published.branch}, {published.files} files", 0, 0)
    return f"{published.repo_id}@{published.branch}"


def _ask(repos: Mapping[str, str], url: str, cache: Path, tell: Tell) -> dict[str, Answer]:
    """One consumer process a dtype, side by side: the answers do not depend on each other, and there are two cores."""
    done = dict.fromkeys(DTYPES, 0)

    def ask(dtype: str) -> Answer:
        def count(images: int, of: int) -> None:
            done[dtype] = images
            tell("fetch, swap, classify in the simulator", sum(done.values()), of * len(DTYPES))

        return _consumer(Question(repos, dtype, BATCH, ARCH), url, cache / dtype, count)

    with ThreadPoolExecutor(len(DTYPES)) as threads:
        return dict(zip(DTYPES, threads.map(ask, DTYPES), strict=True))


def _consumer(question: Question, url: str, cache: Path, count: Callable[[int, int], None]) -> Answer:
    """Run flows/classify.py in a process that knows nothing but the registry's URL and an empty cache."""
    command = [sys.executable, "-m", "kernels_neuron.flows.classify"]
    # a file and not a pipe: nobody reads it while the process runs, and a full pipe would stop the process
    with tempfile.TemporaryFile("w+") as talk, _process(command, _environment(url, cache), talk) as process:
        assert process.stdin and process.stdout
        with process.stdin:
            json.dump(asdict(question), process.stdin)
        for line in process.stdout:
            said = json.loads(line)
            if "done" in said:
                count(said["done"], said["of"])
            elif "error" in said:
                raise KernelsNeuronError(f"the consumer in {question.dtype}: {said['error']}", hint=said["hint"])
            else:
                return Answer.from_json(said["result"])
        process.wait()
        talk.seek(0)
        raise KernelsNeuronError(f"the consumer in {question.dtype} stopped without an answer:\n{talk.read()[-4000:]}")


def _process(command: list[str], environment: dict[str, str], talk: IO[str]) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=talk, text=True)


def _environment(url: str, cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(HUB_SETTINGS)}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    hub = {"HF_ENDPOINT": url, "HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "127.0.0.1"}
    return kept | threads | hub


def _write(path: Path, text: str) -> Path:
    """Write a file so that a reader sees the old one or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    return fresh.replace(path)
