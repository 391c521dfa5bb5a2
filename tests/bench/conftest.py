"""The harness's modules live in a folder without a package; its tests import them by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "conformance"))
