"""Build hook: puts kernel.toml, nki_src/ and the artifacts built from them into the wheel as package data."""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# where manifest.find_manifest looks when no kernel.toml lies above the current folder
PACKAGED = "kernels_neuron/packaged"
SOURCES = ("kernel.toml", "nki_src")


class PackagedKernels(BuildHookInterface):
    """Adds the kernels to a standard wheel; an editable install reads them from the checkout."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict) -> None:
        """Called by hatchling before it collects files."""
        if version == "editable":
            return
        root = Path(self.root)
        build_data["force_include"].update({str(root / name): f"{PACKAGED}/{name}" for name in SOURCES})
