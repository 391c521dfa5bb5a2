"""Names a registry admits: safe on every file system, and never two that one file system would take for the same."""

import re
import unicodedata
from collections.abc import Iterable

from .faults import Refused

# a repo id becomes a folder and a URL, so it keeps to what huggingface_hub's own check lets through
_ID_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WINDOWS_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)

# first segments of a URL that mean something else than an owner
_ROUTES = frozenset({"api", "kernels", "models", "datasets", "spaces", "resolve", "health", "metrics", "static", "web"})
_MAX_SEGMENT_BYTES = 255
_MAX_PATH_BYTES = 1024
_MAX_REF_BYTES = 200


def is_commit(revision: str) -> bool:
    """Whether a revision is a full commit id: 40 lower-case hex digits."""
    return _COMMIT.fullmatch(revision) is not None


def check_repo_id(repo_id: str) -> tuple[str, str]:
    """(owner, name) of `owner/name`; refuses what cannot be a folder, a URL and a repo id of huggingface_hub alike."""
    owner, slash, name = repo_id.partition("/")
    if not slash:
        raise Refused(f"repo id is owner/name, got {repo_id!r}")
    for part in (owner, name):
        if not _ID_PART.fullmatch(part) or "--" in part or ".." in part or part.lower().endswith((".git", ".ipynb")):
            raise Refused(f"repo id {repo_id!r}: {part!r} is not a name of letters, digits and single '-', '_', '.'")
        if _WINDOWS_DEVICE.fullmatch(part):
            raise Refused(f"repo id {repo_id!r}: {part!r} is a device name on Windows")
    if owner.lower() in _ROUTES:
        raise Refused(f"repo id {repo_id!r}: the owner name {owner!r} is taken by the server's own routes")
    return owner, name


def check_path(path: str) -> str:
    """A path inside a repo: relative, forward slashes, no segment that some file system resolves to something else."""
    if not path:
        raise Refused("path is empty")
    if len(_utf8(path)) > _MAX_PATH_BYTES:
        raise Refused(f"path takes at most {_MAX_PATH_BYTES} bytes, got {len(_utf8(path))}: {path[:60]!r}...")
    for segment in path.split("/"):
        problem = _segment_problem(segment)
        if problem:
            raise Refused(f"path {path!r}: {problem}")
    return path


def check_tree(paths: Iterable[str]) -> None:
    """No two paths, nor a folder and a file, that a file system ignoring case or Unicode form would take for one."""
    spelled: dict[str, str] = {}
    files = set()
    for path in sorted(paths):
        files.add(path)
        for end in [i for i, char in enumerate(path) if char == "/"] + [len(path)]:
            prefix = path[:end]
            other = spelled.setdefault(_folded(prefix), prefix)
            if other != prefix:
                raise Refused(f"path {path!r} differs from {other!r} only by case or Unicode form")
            if end < len(path) and prefix in files:
                raise Refused(f"path {path!r} needs a folder where the file {prefix!r} is")


def check_ref(name: str) -> str:
    """A branch or tag name, by git's rules; 40 hex digits and `refs/...` would be mistaken for something else."""
    bad = (
        len(_utf8(name)) > _MAX_REF_BYTES
        or _CONTROL.search(name)
        or any(char in name for char in " ~^:?*[\\")
        or any(part in name for part in ("..", "@{", "//"))
        or name in ("", "@", "HEAD")
        or name.startswith(("/", "-"))
        or name.endswith(("/", "."))
        or any(part.startswith(".") or part.endswith(".lock") for part in name.split("/"))
    )
    if bad:
        raise Refused(f"{name!r} is not a branch or tag name that git allows")
    if name.startswith("refs/") or is_commit(name):
        raise Refused(f"{name!r} cannot name a branch or tag: it reads as a full ref or a commit")
    return name


def _segment_problem(segment: str) -> str | None:
    if segment in ("", ".", ".."):
        return "empty, '.' and '..' segments are not allowed, nor a leading or trailing '/'"
    if _CONTROL.search(segment):
        return "control characters are not allowed"
    if "\\" in segment or ":" in segment:
        return "'\\' and ':' are not allowed: Windows reads them as separators"
    if segment[-1] in ". ":
        return f"segment {segment!r} ends in {segment[-1]!r}, which Windows drops"
    if segment.lower() == ".git":
        return "'.git' is not allowed"
    if _WINDOWS_DEVICE.fullmatch(segment):
        return f"{segment!r} is a device name on Windows"
    if len(_utf8(segment)) > _MAX_SEGMENT_BYTES:
        return f"a segment takes at most {_MAX_SEGMENT_BYTES} bytes, got {len(_utf8(segment))}"
    return None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refused(f"{text!r} is not valid Unicode text") from None


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
