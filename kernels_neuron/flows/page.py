"""Pages that need nothing but themselves: templates of flows/data, which share one style."""

from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).parent / "data"


def render_page(template: str, **values: Any) -> str:
    """A template of flows/data as HTML; a value that is missing is an error, text is escaped."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8")
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=True)
    return environment.get_template(template).render(**values)
