"""The kernels a swap uses: which ones the caller meant, and what a report says about each."""

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels_neuron.artifact import Metadata
from kernels_neuron.errors import ArtifactError, HubError, UsageError

from .fetch import RepoMissing
from .get import get_kernel, is_kernel_folder

KERNELS = ("layernorm", "gemm", "vit_attn", "patch_embed")

# the version of the kernels' public API whose layers and arguments the tables here are written for
API_VERSION = 1

Sources = Mapping[str, ModuleType] | Callable[[str], ModuleType | None]
Choice = str | Path | ModuleType | None


@dataclass(frozen=True)
class Kernel:
    """One loaded artifact: its folder name in nki_src, its module, and what tells it from every other build."""

    name: str
    module: ModuleType
    id: str
    version: int | None = None
    digest: str | None = None

    @classmethod
    def of(cls, name: str, module: ModuleType) -> "Kernel":
        """Describe a loaded module; one that was not built (a module made by hand) has a name and nothing else."""
        file = getattr(module, "__file__", None)
        folder = Path(file).parent if file else None
        if folder is None or not (folder / "metadata.json").is_file():
            return cls(name, module, module.__name__)
        metadata = Metadata.read(folder)
        listing = json.dumps(dict(sorted(metadata.digest.items())), separators=(",", ":"))
        return cls(name, module, metadata.id, metadata.version, hashlib.sha256(listing.encode()).hexdigest())

    @property
    def unsupported(self) -> tuple[type[Exception], ...]:
        """The error by which this artifact refuses a call it does not serve."""
        error = getattr(self.module, "Unsupported", None)
        return (error,) if error is not None else ()

    def layer(self, name: str) -> Any | None:
        """The class `name` of the artifact's `layers`, or None where it has no such layer."""
        return getattr(getattr(self.module, "layers", None), name, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Kernel":
        # a copied model runs the same artifact; modules cannot be copied
        return self


class Kernels:
    """Finds the kernel of a name once, where the caller said: a folder, a repo, an organization or a loaded module."""

    def __init__(self, kernels: str | Mapping[str, Choice] | None, sources: Sources | None) -> None:
        self.choice = kernels
        self._find = _finder(kernels, sources)
        chosen = kernels if isinstance(kernels, Mapping) else {}
        self.excluded = {name for name, choice in chosen.items() if choice is None}
        self.unused = tuple(str(name) for name in chosen if name not in KERNELS)
        self._found: dict[str, Kernel | None] = {}

    def get(self, name: str) -> Kernel | None:
        """The kernel called `name`, loaded at the first call, or None where there is none."""
        if name not in self._found:
            module = None if name in self.excluded else self._find(name)
            self._found[name] = None if module is None else Kernel.of(name, module)
        return self._found[name]

    def require_any(self) -> None:
        """Refuse an organization that has none of the kernels this model could use: its name is wrong."""
        if isinstance(self.choice, str) and self._found and not any(self._found.values()):
            raise HubError(
                f"{self.choice} has none of the kernels {', '.join(self._found)}",
                hint=f"check the name and HF_ENDPOINT; repos are called {self.choice}/neuron-<kernel>",
            )


def _finder(kernels: str | Mapping[str, Choice] | None, sources: Sources | None) -> Callable[[str], ModuleType | None]:
    if kernels is None:
        if sources is None:
            raise UsageError(
                "kernelize was given no kernels", hint='name them: kernels="org" or {"layernorm": "org/repo@v1"}'
            )
        return sources if callable(sources) else sources.get
    if isinstance(kernels, str):
        return _organization(kernels)
    if isinstance(kernels, Mapping):
        for name in kernels:
            # a name near one that is served is a slip; any other is a kernel for code that is not a model's layer
            near = difflib.get_close_matches(str(name), KERNELS, n=1)
            if near and name not in KERNELS:
                raise UsageError(f"kernels: unknown kernel {name!r}", hint=f"did you mean {near[0]!r}")
        return lambda name: _load(name, kernels[name]) if name in kernels else None
    raise UsageError(
        f"kernels takes an organization, a dict or None, got {type(kernels).__name__}",
        hint='pass kernels="org" or kernels={"layernorm": "org/neuron-layernorm@v1"}',
    )


def _organization(name: str) -> Callable[[str], ModuleType | None]:
    if not name or "/" in name or "@" in name:
        raise UsageError(
            f"kernels takes the name of an organization, got {name!r}",
            hint='name a single repo in a dict: kernels={"layernorm": "org/neuron-layernorm@v1"}',
        )

    def find(kernel: str) -> ModuleType | None:
        try:
            return get_kernel(f"{name}/neuron-{kernel.replace('_', '-')}", version=API_VERSION)
        except RepoMissing:
            return None  # an organization need not publish every kernel

    return find


def _load(name: str, choice: Choice) -> ModuleType | None:
    if choice is None or isinstance(choice, ModuleType):
        return choice
    if isinstance(choice, Path) or (isinstance(choice, str) and is_kernel_folder(Path(choice))):
        return get_kernel(choice)
    if not isinstance(choice, str):
        raise UsageError(
            f"kernels[{name!r}] takes a repo, a folder, a loaded kernel or None, got {type(choice).__name__}"
        )
    repo, _, revision = choice.partition("@")
    return get_kernel(repo, revision=revision) if revision else get_kernel(repo, version=API_VERSION)


def layer_of(kernel: Kernel, name: str, parameters: tuple[str, ...]) -> Any | None:
    """The layer class `name`, checked to be stateless and to take exactly `parameters`; None where there is none."""
    layer = kernel.layer(name)
    if layer is None:
        return None
    allowed = {"forward", "has_backward", "can_torch_compile"}
    extra = sorted(key for key in vars(layer) if not key.startswith("__") and key not in allowed)
    if extra or "__init__" in vars(layer):
        raise ArtifactError(
            f"layer {name} of {kernel.id} has members of its own: {', '.join(extra or ['__init__'])}",
            hint="a layer holds forward, has_backward and can_torch_compile; state comes from the module it serves",
        )
    code = layer.forward.__code__
    takes = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if takes != ("self", *parameters) or code.co_kwonlyargcount or code.co_flags & 0x0C:
        raise ArtifactError(
            f"layer {name} of {kernel.id} takes ({', '.join(takes)}), "
            f"the swap passes ({', '.join(('self', *parameters))})",
            hint="load a version of the kernel whose layer has this signature",
        )
    return layer
