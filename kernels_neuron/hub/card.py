"""The card's front matter, judged alike by whoever sends it and by the registry that gets it."""

from typing import Any

_FENCE = "---"


def front_matter_problem(content: str) -> str | None:
    """What is wrong with the YAML between the first two lines of ---, or None; a card without any is fine."""
    import yaml  # type: ignore[import-untyped]

    lines = content.splitlines()
    if not lines or lines[0].strip() != _FENCE:
        return None
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == _FENCE), None)
    if end is None:
        return f"the YAML front matter has no closing {_FENCE}"
    try:
        value: Any = yaml.safe_load("\n".join(lines[1:end]))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"the YAML front matter cannot be read: {' '.join(str(error).split())}"
    return None if value is None or isinstance(value, dict) else "the YAML front matter is not a mapping"
