"""docs/debugging.md is one program, and it prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "debugging.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_page_prints_what_it_shows(tmp_path):
    (tmp_path / "debug.py").write_text("\n\n".join(blocks("python")))
    done = subprocess.run([sys.executable, "debug.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(blocks("text"))
