"""What became of one case: ran here, in a process of its own, and was put into one row."""

import json
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

# address space of one case, unless told otherwise: what the library's largest tests are allowed on a host
MEMORY_BYTES = 20 << 30
# how numpy and torch say that there is no memory, also where the library has wrapped it in an error of its own
NO_MEMORY = ("Unable to allocate", "can't allocate memory")
WALL_LIMIT = 10  # the limit in wall-clock time, as a multiple of the one in processor time
MESSAGE_CHARACTERS = 400


@dataclass
class Outcome:
    """One row of the results. `error` is None when ok: else a rule of the simulator, an exception type, or a word.

    words  timeout (stopped), crashed (the process died), mismatch (outside the vendor's tolerance),
           not-refused (a case that must be refused ran), memory (needs more than it may have)
    stage  where it failed: inputs (being made), simulate (in the kernel), reference (in the library's own torch code),
           compare, test
    input_bytes  of all arrays handed to the kernel
    inputs_cpu_s, sim_cpu_s  processor time until the kernel's first call, and in the simulator; cpu_s is all of it
    """

    id: str
    kernel: str
    ok: bool = False
    error: str | None = None
    message: str = ""
    where: str = ""
    stage: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    input_bytes: int = 0
    inputs_cpu_s: float = 0.0
    sim_cpu_s: float = 0.0
    instructions: int = 0
    errors: list[dict[str, float]] = field(default_factory=list)
    done: bool = field(default=False, repr=False)

    def blame(self, error: BaseException, stage: str) -> None:
        """Take the failure from an exception."""
        self.stage = stage
        self.error = getattr(error, "rule", None) or kind_of(type(error).__name__, str(error))
        self.message = str(error).strip()[:MESSAGE_CHARACTERS]
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            self.where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}"

    def row(self, **provenance: str) -> str:
        """The outcome as a line of JSON, parts that say nothing left out; `provenance` says whose code ran."""
        said = {key: value for key, value in asdict(self).items() if key in _ALWAYS or (value and key != "done")}
        return json.dumps({**said, **provenance})


def kind_of(name: str, message: str) -> str:
    """The class of an exception: its name, or "memory" whatever it is called."""
    starved = name.endswith("MemoryError") or any(words in message for words in NO_MEMORY)
    return "memory" if starved else name


_ALWAYS = ("id", "kernel", "ok", "error", "wall_s", "cpu_s")


Note = Callable[[Outcome], None]  # keeps an outcome as it is now, for the case that the process is stopped later


def in_own_process(
    case: str,
    kernel: str,
    work: Callable[[Outcome, Note], None],
    limit_s: float,
    *,
    memory_bytes: int = MEMORY_BYTES,
) -> Outcome:
    """Run `work`, which fills in an Outcome and notes how far it is, in a fork; stop it after `limit_s` seconds.

    They are seconds of processor time, so that what else the machine does decides nothing; a case that waits instead of
    working is stopped after WALL_LIMIT times as long.
    """
    begin = time.monotonic()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        _child(writer, Outcome(case, kernel, stage="inputs"), work, limit_s)
    os.close(writer)
    answer, stopped = _read(reader, begin + WALL_LIMIT * limit_s)
    if stopped:
        os.kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    os.close(reader)
    # a last line cut short by a kill says nothing
    noted = [line for line in answer.split(b"\n") if line.endswith(b"}")]
    outcome = Outcome(**json.loads(noted[-1])) if noted else Outcome(case, kernel)
    if not outcome.done:
        outcome.ok, outcome.error = False, "crashed"
        outcome.message = f"wait status {status}"
        if stopped or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            outcome.error, outcome.message = "timeout", f"stopped after {limit_s:g} s"
    outcome.wall_s = round(time.monotonic() - begin, 2)
    outcome.cpu_s = round(used.ru_utime + used.ru_stime, 2)
    return outcome


def _read(reader: int, deadline: float) -> tuple[bytes, bool]:
    """(everything written until the other end closed, whether time ran out first)."""
    chunks = []
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([reader], [], [], left)
        if ready:
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                return b"".join(chunks), False
            chunks.append(chunk)
    return b"".join(chunks), True


def _child(writer: int, outcome: Outcome, work: Callable[[Outcome, Note], None], limit_s: float) -> None:
    seconds = max(1, round(limit_s))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))

    def note(now: Outcome) -> None:
        os.write(writer, json.dumps(asdict(now)).encode() + b"\n")

    try:
        note(outcome)
        work(outcome, note)
        note(replace(outcome, done=True))
    finally:
        # no interpreter shutdown: the fork shares open files and exit handlers with its parent
        os._exit(0)
