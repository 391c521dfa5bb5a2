"""Two pages for people: what kernels there are, and what one of them holds. No script, nothing from elsewhere."""

import functools
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, Response

from ..storage.contents import Holding, holdings
from ..storage.records import Commit
from .call import Call

if TYPE_CHECKING:
    import jinja2

CARD = "README.md"
_MAX_CARD_BYTES = 2**18
# a card is text that somebody uploaded: even if it got past the escaping, nothing of it could run
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def home(call: Call) -> Response:
    """Every kernel that everybody, or this caller, may see."""
    downloads = call.store.downloads.all()
    rows = []
    for repo_id, releases in _releases(call).items():
        count = sum(number for (repo, _), number in downloads.items() if repo == repo_id)
        rows.append({"id": repo_id, "releases": releases, "downloads": count})
    return _page("home.html.jinja", call, rows=rows)


def kernel(call: Call) -> Response:
    """One kernel: versions, variants, downloads, how to load it, its card."""
    repo = call.repo()
    releases = list(_releases(call).get(repo.id, []))
    return _page(
        "kernel.html.jinja",
        call,
        repo=repo,
        releases=releases,
        downloads=call.store.downloads.of(repo.id),
        newest=next((one.branch[1:] for one in reversed(releases) if one.branch[1:].isdecimal()), None),
        card=_card(call, call.store.commit(repo, "main")),
    )


def _releases(call: Call) -> dict[str, list[Holding]]:
    found: dict[str, list[Holding]] = {}
    for holding in holdings(call.store):
        if call.may_see(holding.repo_id, holding.private):
            found.setdefault(holding.repo_id, []).append(holding)
    return found


def _card(call: Call, commit: Commit) -> str:
    """The card without its front matter; empty where there is none or it is damaged."""
    blob = commit.files.get(CARD)
    if blob is None or blob.size > _MAX_CARD_BYTES:
        return ""
    try:
        text = call.store.blobs.path(blob.sha256).read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    _, fence, rest = text.partition("---\n") if text.startswith("---\n") else ("", "", "")
    body = rest.partition("\n---\n")[2] if fence else text
    return body.strip()


@functools.cache
def _environment() -> "jinja2.Environment":
    import jinja2

    loader = jinja2.PackageLoader("kernels_neuron.hub")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def _page(template: str, call: Call, **values: Any) -> Response:
    text = _environment().get_template(template).render(endpoint=call.endpoint, **values)
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), headers=_HEADERS)
