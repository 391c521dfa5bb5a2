"""`new`: a kernel folder that already verifies, and its table in kernel.toml."""

import re
import shutil
from pathlib import Path

from kernels_neuron.errors import UsageError
from kernels_neuron.manifest import MANIFEST, SOURCES, installed_manifest, is_folder_name

from .generate import render

TEMPLATES = Path(__file__).parent / "templates" / "new"


def scaffold(name: str, start: Path | None = None, license: str = "apache-2.0") -> Path:
    """Write nki_src/<name>/ with kernel, reference, operators, layers, spec and benchmark; return the folder.

    start  where to look for kernel.toml, the current folder for None; where there is none above it, a new project
           begins there, with a copy of nki_src/common

    Refuses a name that is taken or cannot be a module and a Hub name, before anything is written.
    """
    if not is_folder_name(name):
        hint = f"`kernels-neuron new {_suggestion(name)}`"
        raise UsageError(f"a kernel name is lower-case letters, digits and underscores, got {name!r}", hint=hint)
    start = (start or Path()).absolute()
    root = next((folder for folder in (start, *start.parents) if (folder / MANIFEST).is_file()), start)
    path = root / MANIFEST
    repo = f"neuron-{name.replace('_', '-')}"
    folder = root / SOURCES / name
    if folder.exists():
        raise UsageError(f"{folder} exists", hint="choose another name")
    text = path.read_text("utf-8") if path.is_file() else "# Which folders of nki_src/ are published, and how.\n"
    if re.search(rf"^\s*\[kernels\.{name}\]", text, re.MULTILINE) or f'"{repo}"' in text:
        raise UsageError(f"{path} has a kernel {name} or a repo {repo}", hint="choose another name")
    _copy_common(root)
    _write_folder(folder, name)
    table = f'[kernels.{name}]\nrepo = "{repo}"\nversion = 1\nlicense = "{license}"\n'
    path.write_text(f'{text.rstrip()}\n\n{table}variants = ["torch-neuron", "torch-cpu"]\n', "utf-8")
    return folder


def _write_folder(folder: Path, name: str) -> None:
    fresh = folder.with_name(f".{name}.unfinished")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    layer = "".join(part.capitalize() for part in name.split("_"))
    for template in sorted(TEMPLATES.glob("*.jinja")):
        text = render(f"new/{template.name}", name=name, layer=layer)
        (fresh / template.name.removesuffix(".jinja")).write_bytes(text)
    fresh.rename(folder)


def _copy_common(root: Path) -> None:
    """What operators check their arguments and kernels look up their tiles with; a new project gets its own copy."""
    common = root / SOURCES / "common"
    if (common / "checks.py").is_file():
        return
    installed = installed_manifest()
    if installed is None:
        raise UsageError("this installation has no nki_src/common", hint="install kernels-neuron again")
    ours = installed.parent / SOURCES / "common"
    common.mkdir(parents=True, exist_ok=True)
    for file in ("__init__.py", "checks.py", "tuning.py"):
        if not (common / file).exists():
            shutil.copyfile(ours / file, common / file)


def _suggestion(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")
    return plain if is_folder_name(plain) else "my_kernel"
