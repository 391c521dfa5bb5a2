"""torch.compile(backend="neuron") on the emulated device: the captured graph, run operator by operator."""

import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

_NAME = "kernels-neuron-emulated-device"
_FILES = {
    "METADATA": f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 0\n",
    "entry_points.txt": f"[torch_dynamo_backends]\nneuron = {__name__}:run_graph\n",
}


def run_graph(graph: Any, example_inputs: list[Any]) -> Callable[..., Any]:
    """What torch.compile calls with a captured graph; returns what it calls instead of the Python code."""
    return graph.forward


class _Distribution(metadata.Distribution):
    """A distribution without files that declares the backend."""

    def read_text(self, filename: str) -> str | None:
        return _FILES.get(filename)

    def locate_file(self, path: Any) -> Path:
        return Path(path)


class _Finder(metadata.DistributionFinder):
    def find_distributions(self, context: Any = None) -> Iterable[metadata.Distribution]:
        name = getattr(context, "name", None)
        return [_Distribution()] if name in (None, _NAME) else []

    def find_spec(self, *args: Any) -> None:
        return None


def install() -> None:
    """Let torch.compile find the backend, which it looks up by entry point when it is first asked for one by name.

    The entry point exists in this process only: one in our wheel would stand beside TorchNeuron's on a real device, and
    registering the function directly would load all of torch's compiler.
    """
    sys.meta_path.append(_Finder())
