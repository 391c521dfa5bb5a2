"""The demo's consumer, a process of its own: fetch kernels, put them into the model, classify, compare.

It knows the registry by HF_ENDPOINT, an empty cache by HF_HOME, and what it is asked as JSON on its standard input. It
answers in JSON lines on standard output: {"done", "of"} after each batch, then {"result"}, or {"error", "hint"}.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernels_neuron.errors import KernelsNeuronError

from .digits import load_digits, load_model, preprocess
from .layer_times import LayerTime, layer_times

if TYPE_CHECKING:
    import torch

    from kernels_neuron.sim.context import Run


@dataclass(frozen=True)
class Question:
    """kernels: name -> "owner/repo@revision"; batch: images in one call of the model."""

    kernels: Mapping[str, str]
    dtype: str
    batch: int
    arch: str


@dataclass(frozen=True)
class Answer:
    """before: classes by the unswapped model in float32, after: by the swapped one in the dtype that was asked.

    Errors are against the unswapped model in float32; `times` are estimates for one batch.
    """

    before: list[int]
    after: list[int]
    logits_rel_l2: float
    flop_share_swapped: float
    instructions: int
    modules: list[dict[str, Any]]
    times: list[LayerTime]
    versions: dict[str, str]

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Answer":
        """The inverse of dataclasses.asdict."""
        return cls(**value | {"times": [LayerTime(**time) for time in value["times"]]})


def classify(question: Question, tell: Callable[[int, int], None] = lambda done, of: None) -> Answer:
    """Classify the held-out digits with kernels from the Hub; `tell` gets the images done and their number."""
    import torch

    from kernels_neuron.loader import check_model, kernelize, report

    dtype = getattr(torch, question.dtype)
    pixels = torch.from_numpy(preprocess(load_digits().test))
    with torch.no_grad():
        plain = load_model()
        expected = plain(pixels).logits
        model = kernelize(load_model().to(dtype), kernels=dict(question.kernels), mode="inference")
        logits, instructions = [], 0
        for images in pixels.to(dtype).split(question.batch):
            out, runs = _simulated(model, images, question.arch)
            logits.append(out)
            instructions += sum(run.instructions for run in runs)
            tell(sum(map(len, logits)), len(pixels))
        after = torch.cat(logits)
        first = pixels[: question.batch].to(dtype)
        check_model(model, first, original=plain)
        counted = report(model)
        times = layer_times(model, load_model().to(dtype), first, question.arch)
    return Answer(
        before=expected.argmax(-1).tolist(),
        after=after.argmax(-1).tolist(),
        logits_rel_l2=float((after - expected).norm() / expected.norm()),
        flop_share_swapped=counted.flop_share or 0.0,
        instructions=instructions,
        modules=[asdict(module) for module in counted.modules],
        times=times,
        versions=dict(counted.versions),
    )


def _simulated(model: Any, images: "torch.Tensor", arch: str) -> "tuple[torch.Tensor, list[Run]]":
    from kernels_neuron.sim.context import using

    with using(arch=arch) as runs:
        return model(images).logits.float(), runs


def main() -> int:
    """Answer the question on standard input; 1 when the answer is an error."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is not an answer

    def write(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        answer = classify(Question(**json.load(sys.stdin)), lambda done, of: write({"done": done, "of": of}))
    except KernelsNeuronError as error:
        write({"error": str(error), "hint": error.hint})
        return 1
    write({"result": asdict(answer)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
