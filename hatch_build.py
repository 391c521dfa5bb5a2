"""Build hook: puts kernel.toml, nki_src/ and the artifacts built from them into the wheel as package data."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# where kernels_neuron/manifest.py looks when no kernel.toml lies above the current folder
PACKAGED = "kernels_neuron/packaged"


class PackagedKernels(BuildHookInterface):
    """Builds the kernels into a standard wheel; an editable install reads them from the checkout."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        if version == "editable":
            return
        root = Path(self.root)
        self.work = tempfile.TemporaryDirectory(prefix="kernels-neuron-wheel-")
        include = {str(root / name): f"{PACKAGED}/{name}" for name in ("kernel.toml", "nki_src")}
        for built in self.build_artifacts(root, Path(self.work.name)):
            include[str(built)] = f"{PACKAGED}/build/{built.name}"
        build_data["force_include"].update(include)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling when the wheel is written."""
        if version != "editable":
            self.work.cleanup()

    def build_artifacts(self, root: Path, work: Path) -> list[Path]:
        """The folders of the built Hub repos, by the builder of this source tree."""
        # the builder writes the version of this distribution into the provenance, and it is not installed yet
        info = work / f"kernels_neuron-{self.metadata.version}.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: kernels-neuron\nVersion: {self.metadata.version}\n"
        )
        sys.path[:0] = [str(root), str(work)]
        from kernels_neuron.builder import build
        from kernels_neuron.manifest import Manifest

        return [built.root for built in build(Manifest.read(root / "kernel.toml"), out=work / "build")]
