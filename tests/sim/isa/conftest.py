"""The tests of the instructions share calls.py and views.py, which stand beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
