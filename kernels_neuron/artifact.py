"""The contract between builder and loader: metadata.json, digests, build ids, and the import of a built variant."""

import base64
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import ArtifactError

VARIANTS = ("torch-neuron", "torch-cpu")
METADATA = "metadata.json"
KERNELS_MINVER = "0.14.0"  # what upstream's builder writes for a kernel without kernel dependencies
# beside metadata.json itself these carry no digest: a signature covers metadata.json, bytecode is never run
_UNSIGNED = (METADATA, "metadata.json.sigstore")
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_MISSING = object()


@dataclass(frozen=True)
class Metadata:
    """metadata.json of one variant. `digest` maps each file to its base64 SHA-256; `nki` is our own block.

    to_json writes the bytes upstream's writer would; `nki` stands last, where upstream's reader ignores it.
    """

    name: str
    id: str
    version: int
    license: str
    python_depends: tuple[str, ...]
    backend: str
    digest: dict[str, str]
    kernels_minver: str = KERNELS_MINVER
    provenance: dict[str, Any] | None = None
    nki: dict[str, Any] | None = None
    kernel_depends: tuple[dict[str, Any], ...] = field(default=())

    def to_json(self) -> str:
        """The text of metadata.json: upstream's key order and layout, no final newline."""
        value: dict[str, Any] = {
            "name": self.name,
            "id": self.id,
            "version": self.version,
            "kernels-minver": self.kernels_minver,
            "license": self.license,
            "python-depends": list(self.python_depends),
            "kernel-depends": list(self.kernel_depends),
            "backend": {"type": self.backend},
            "digest": {"algorithm": "sha256", "files": dict(sorted(self.digest.items()))},
        }
        value |= {"provenance": self.provenance} if self.provenance else {}
        value |= {"nki": self.nki} if self.nki else {}
        return json.dumps(value, indent=2, ensure_ascii=False)

    @classmethod
    def read(cls, variant_dir: Path | str) -> "Metadata":
        """Read a variant's metadata.json. Refuses it with one error that names the file and the field."""
        path = Path(variant_dir) / METADATA
        try:
            return cls.parse(path.read_bytes(), path)
        except FileNotFoundError:
            hint = "a variant is a folder such as build/neuron-layernorm/build/torch-neuron"
            raise ArtifactError(f"there is no {path}", hint=hint) from None

    @classmethod
    def parse(cls, data: bytes, path: Path | str = METADATA) -> "Metadata":
        """The metadata in these bytes; `path` is what an error calls them."""
        try:
            text = data.decode("utf-8-sig")
            value = json.loads(text) if text.strip() else _MISSING
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ArtifactError(f"{path}: not JSON: {error}", hint=_FETCH_AGAIN) from None
        if value is _MISSING:
            raise ArtifactError(f"{path}: is empty", hint=_FETCH_AGAIN)
        fields = _Fields(value, str(path))
        backend = _Fields(fields.get("backend", dict), str(path), "backend.")
        digest = _Fields(fields.get("digest", dict, {}), str(path), "digest.")
        metadata = cls(
            name=fields.get("name", str),
            id=fields.get("id", str),
            version=fields.get("version", int),
            license=fields.get("license", str),
            python_depends=tuple(fields.items("python-depends", str)),
            backend=backend.get("type", str),
            digest=digest.get("files", dict, {}),
            kernels_minver=fields.get("kernels-minver", str, KERNELS_MINVER),
            provenance=fields.get("provenance", dict, None),
            nki=fields.get("nki", dict, None),
            kernel_depends=tuple(fields.items("kernel-depends", dict, [])),
        )
        _check_values(metadata, fields, digest)
        return metadata


_FETCH_AGAIN = "fetch or build the variant again"


class _Fields:
    """A JSON object whose fields are read with a check of their type."""

    def __init__(self, value: Any, path: str, prefix: str = "") -> None:
        self.path, self.prefix = path, prefix
        if not isinstance(value, dict):
            raise self.error("the whole file", f"has to be an object, got {type(value).__name__}")
        self.value = value

    def error(self, key: str, text: str) -> ArtifactError:
        return ArtifactError(f"{self.path}: {self.prefix}{key} {text}", hint=_FETCH_AGAIN)

    def get(self, key: str, kind: type, default: Any = _MISSING) -> Any:
        value = self.value.get(key)
        if value is None and default is not _MISSING:
            return default
        if value is None:
            raise self.error(key, "is missing")
        if type(value) is not kind:
            raise self.error(key, f"has to be {_JSON_WORDS[kind]}, got {json.dumps(value)[:60]}")
        return value

    def items(self, key: str, kind: type, default: Any = _MISSING) -> list:
        values = self.get(key, list, default)
        for value in values:
            if type(value) is not kind:
                raise self.error(key, f"has to be a list of {_JSON_WORDS[kind].split()[-1]}s")
        return values


_JSON_WORDS = {str: "a string", int: "an integer", list: "a list", dict: "an object"}


def _check_values(metadata: Metadata, fields: _Fields, digest: _Fields) -> None:
    if not _NAME.fullmatch(metadata.name):
        raise fields.error("name", f"has to be lower-case letters, digits and dashes, got {metadata.name!r}")
    if metadata.version < 0:
        raise fields.error("version", f"has to be 0 or more, got {metadata.version}")
    # the id becomes a name in sys.modules and in torch.ops, so it must not be able to stand for anything else
    prefix = f"_{metadata.name.replace('-', '_')}_"
    if not re.fullmatch(r"[a-z0-9_]+", metadata.id) or not metadata.id.startswith(prefix):
        raise fields.error("id", f"has to start with {prefix} and be lower-case, got {metadata.id!r}")
    algorithm = digest.get("algorithm", str, "sha256")
    if algorithm != "sha256":
        raise digest.error("algorithm", f"has to be sha256, got {algorithm!r}")
    for file, value in metadata.digest.items():
        if not isinstance(value, str):
            raise digest.error(f"files.{file}", "has to be a base64 string")


def build_id(kernel_name: str, backend: str, files: Mapping[str, bytes]) -> str:
    """The id of a variant, such as _neuron_layernorm_neuron_4x7q2m5tza: the same sources have the same id.

    kernel_name  the repo name, dashes allowed
    files        path -> bytes of the sources, before the id is written into any of them
    """
    sha = hashlib.sha256()
    for path in sorted(files):
        sha.update(f"{path}\0{len(files[path])}\0".encode())
        sha.update(files[path])
    unique = base64.b32encode(sha.digest()).decode().lower()[:10]
    return f"_{kernel_name.replace('-', '_')}_{backend}_{unique}"


def digest_of(data: bytes) -> str:
    """The base64 SHA-256 that metadata.json records for these bytes."""
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def digest_files(variant_dir: Path | str) -> dict[str, str]:
    """The digest of each file of a variant, as upstream's hash_variant: path -> base64 SHA-256, sorted by path.

    metadata.json and its signature at the top are left out, and so is bytecode; hidden files count.
    """
    root = Path(variant_dir)
    return {path: digest_of((root / path).read_bytes()) for path in _hashed_paths(root)}


def digest_problems(variant_dir: Path | str, metadata: Metadata) -> list[str]:
    """What about the files of a variant is not as its metadata says; empty is the proof.

    Files changed, missing or not listed, and links that leave the variant for anywhere but the blobs of the same
    Hub cache repo. Bytecode is neither hashed nor reported: the importer does not read it.
    """
    return _read_verified(Path(variant_dir), metadata)[1]


def import_variant(variant_dir: Path | str, metadata: Metadata | None = None) -> ModuleType:
    """The kernel in a variant folder, as a module named by its id; nothing of it runs before its digest is checked.

    metadata  what the caller read there and checked, so that a change of the file since then has no effect; None: read

    The bytes that were hashed are the bytes that run: each file is read once, bytecode is neither read nor written.
    A second call gives the same module. Refuses an id that is loaded already with another digest, because torch
    operators and submodules are found by that id.
    """
    root = Path(variant_dir).resolve()
    metadata = metadata or Metadata.read(root)
    with _IMPORTING:
        loaded = _loaded(metadata, root)
        if loaded is not None:
            return loaded
        files, problems = _read_verified(root, metadata)
        if problems:
            listed = "".join(f"\n  {problem}" for problem in problems)
            raise ArtifactError(f"{root} is not what its metadata says:{listed}", hint=_FETCH_AGAIN)
        return _import_files(metadata, root, files)


def _hashed_paths(root: Path) -> list[str]:
    paths = []
    for path in root.rglob("*"):
        relative = path.relative_to(root)
        bytecode = path.suffix == ".pyc" or "__pycache__" in relative.parts
        if path.is_file() and not bytecode and str(relative) not in _UNSIGNED:
            paths.append(relative.as_posix())
    return sorted(paths)


def _read_verified(root: Path, metadata: Metadata) -> tuple[dict[str, bytes], list[str]]:
    """The bytes of the files that are as listed, and what is wrong with the others."""
    if metadata.kernel_depends:
        names = ", ".join(str(depend.get("repo-id")) for depend in metadata.kernel_depends)
        return {}, [f"it depends on other kernels ({names}), which this importer does not load"]
    if not metadata.digest:
        return {}, ["metadata.json lists no digests, so nothing can be checked"]
    problems = _link_problems(root)
    files: dict[str, bytes] = {}
    present = _hashed_paths(root)
    for path in present:
        if path not in metadata.digest:
            problems.append(f"{path}: not listed in metadata.json")
            continue
        data = (root / path).read_bytes()
        if digest_of(data) == metadata.digest[path]:
            files[path] = data
        else:
            problems.append(f"{path}: changed, its SHA-256 is {digest_of(data)}")
    problems += [f"{path}: missing" for path in sorted(metadata.digest) if path not in present]
    return files, problems


def _link_problems(root: Path) -> list[str]:
    root = root.resolve()
    blobs = _blobs(root)
    problems = []
    for path in sorted(root.rglob("*")):
        if not path.is_symlink():
            continue
        name, target = path.relative_to(root).as_posix(), path.resolve()
        inside = target.is_relative_to(root) or (blobs is not None and target.parent == blobs)
        if not inside:
            problems.append(f"{name}: a link that leaves the repo, to {target}")
        elif not target.is_file():
            problems.append(f"{name}: a link to {'a folder' if target.is_dir() else 'nothing'}")
    return problems


def _blobs(root: Path) -> Path | None:
    """The blobs/ folder of the Hub cache repo whose snapshot this variant is in, or None outside a cache."""
    for parent in root.parents:
        if parent.name == "snapshots":
            return (parent.parent / "blobs").resolve()
    return None


_IMPORTING = threading.RLock()
_IMPORTED: dict[str, tuple[dict[str, str], ModuleType]] = {}
_FILES: dict[str, tuple[Path, dict[str, bytes]]] = {}


def _loaded(metadata: Metadata, root: Path) -> ModuleType | None:
    """The module of this id and digest, also where another importer loaded it from the same bytes."""
    digest, module = _IMPORTED.get(metadata.id, (None, sys.modules.get(metadata.id)))
    if module is None:
        return None
    if digest is None:
        file = getattr(module, "__file__", None)
        digest = digest_files(Path(file).parent) if file else {}
    if digest == metadata.digest:
        return module
    raise ArtifactError(
        f"{root} has the id {metadata.id}, which this process has loaded with other contents from {module.__file__}",
        hint="load the two in separate processes, or build again: other sources get another id",
    )


def _import_files(metadata: Metadata, root: Path, files: dict[str, bytes]) -> ModuleType:
    if "__init__.py" not in files:
        raise ArtifactError(f"{root} has no __init__.py", hint=_FETCH_AGAIN)
    if not any(isinstance(finder, _VariantFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _VariantFinder())
    _FILES[metadata.id] = (root, files)
    imported = False
    try:
        module = importlib.import_module(metadata.id)
        imported = True
    finally:
        if not imported:  # whatever the kernel raised goes on to the caller; no half-made module stays behind
            del _FILES[metadata.id]
            for name in [name for name in sys.modules if name == metadata.id or name.startswith(f"{metadata.id}.")]:
                del sys.modules[name]
    _IMPORTED[metadata.id] = (metadata.digest, module)
    return module


class _VariantFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of imported variants in the bytes that were hashed, and knows no other name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        id, _, rest = fullname.partition(".")
        if id not in _FILES:
            return None
        root, files = _FILES[id]
        stem = rest.replace(".", "/")
        for file in (f"{stem}/__init__.py".lstrip("/"), f"{stem}.py"):
            if file in files:
                loader = _VariantLoader(root / file, files[file], is_package=file.endswith("__init__.py"))
                spec = importlib.util.spec_from_loader(fullname, loader)
                if spec is not None and loader.package:
                    spec.submodule_search_locations = []  # an empty __path__: no other finder looks into the folder
                return spec
        return None


class _VariantLoader(importlib.abc.ExecutionLoader):
    """Runs one file of a variant from memory."""

    def __init__(self, file: Path, data: bytes, *, is_package: bool) -> None:
        self.file, self.data, self.package = file, data, is_package

    def get_filename(self, fullname: str) -> str:
        return str(self.file)

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self.data)

    def is_package(self, fullname: str) -> bool:
        return self.package
