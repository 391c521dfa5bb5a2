"""What one version of a kernel promises its callers: api.json of a variant, and what differs between two of them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ArtifactError

API = "api.json"
SCHEMA = 1

# named orders of rounding; a spec may only name one of these, and a version may not change it
ROUNDINGS = {
    "once": "sums are float32 and rounded once, into the output's dtype",
    "weights": "softmax weights are rounded to the inputs' dtype before their product with v, and the result once more",
    "stages": "rounded to the inputs' dtype on the way too, where the unfused operations round",
}


@dataclass(frozen=True)
class Difference:
    """One thing a new description says otherwise. `breaks`: a caller of the old one may notice."""

    text: str
    breaks: bool


def to_bytes(api: Mapping[str, Any]) -> bytes:
    """The bytes of api.json for a description."""
    return (json.dumps({"schema": SCHEMA, **api}, indent=1, ensure_ascii=False) + "\n").encode()


def parse(data: bytes, path: str = API) -> dict[str, Any]:
    """The description in these bytes. Refuses what is not one, or one of a later schema."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ArtifactError(f"{path}: not JSON: {error}", hint="build and publish the kernel again") from None
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        found = value.get("schema") if isinstance(value, dict) else None
        raise ArtifactError(
            f"{path}: schema has to be {SCHEMA}, got {found!r}", hint="use the kernels-neuron that wrote it"
        )
    return value


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Everything `new` says otherwise than `old`, breaking or not; empty when a caller can see no difference.

    Breaking is what narrows or changes: a name, parameter, dtype, chip, NKI version or layout that is gone, a limit or
    a tolerance that promises less, another rounding, another default. Widening is the rest.
    """
    found = list(_sets(old, new))
    found += _limits(_table(old, "limits"), _table(new, "limits"))
    found += _by_name("function", _table(old, "functions"), _table(new, "functions"), _function)
    found += _by_name("layer", _table(old, "layers"), _table(new, "layers"), _layer)
    found += _by_name("input", _table(old, "inputs"), _table(new, "inputs"), _input)
    found += _by_name("tolerance", _table(old, "tolerances"), _table(new, "tolerances"), _tolerance)
    for key in ("rounding", "kind"):
        if old.get(key) != new.get(key):
            found.append(Difference(f"{key}: {new.get(key)}, was {old.get(key)}", breaks=True))
    return found


_SETS = {"names": "name", "dtypes": "dtype", "archs": "chip", "nki": "NKI version"}


def _sets(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for key, noun in _SETS.items():
        yield from _members(noun, old.get(key, []), new.get(key, []))
    layouts = _table(new, "without_copy")
    for name, before in _table(old, "without_copy").items():
        yield from _members(f"layout of {name} taken without a copy", before, layouts.get(name, []))
    for name in sorted({*layouts} - {*_table(old, "without_copy")}):
        yield from _members(f"layout of {name} taken without a copy", [], layouts[name])


def _members(noun: str, old: Iterable[str], new: Iterable[str]) -> Iterator[Difference]:
    before, after = list(old), list(new)
    yield from (Difference(f"{noun} {item}: is gone", breaks=True) for item in before if item not in after)
    yield from (Difference(f"{noun} {item}: is new", breaks=False) for item in after if item not in before)


def _limits(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for letter in sorted({*old, *new}):
        before, after = old.get(letter), new.get(letter)
        if before == after:
            continue
        text = f"limit {letter}: {_range(after)}, was {_range(before)}"
        narrower = after is not None and (before is None or after[0] > before[0] or after[1] < before[1])
        yield Difference(text, breaks=narrower)


def _range(ends: Any) -> str:
    return "none" if ends is None else f"{ends[0]} to {ends[1]}"


def _by_name(noun: str, old: Mapping[str, Any], new: Mapping[str, Any], compare: Any) -> Iterator[Difference]:
    for name, before in old.items():
        if name not in new:
            yield Difference(f"{noun} {name}: is gone", breaks=True)
        elif before != new[name]:
            yield from (Difference(f"{noun} {name}: {one.text}", one.breaks) for one in compare(before, new[name]))
    yield from (Difference(f"{noun} {name}: is new", breaks=False) for name in new if name not in old)


def _function(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    before, after = old.get("parameters", []), new.get("parameters", [])
    if before != after:
        yield Difference(f"{signature(after)}, was {signature(before)}", breaks=not _accepts_as_before(before, after))


def _accepts_as_before(old: list[dict[str, str]], new: list[dict[str, str]]) -> bool:
    """Whether every call the old parameters take means the same to the new ones: only optional ones were added."""
    kept = [one for one in new if one["name"] in {other["name"] for other in old}]
    if kept != old:
        return False
    positional = [one for one in new if one["kind"].startswith("positional")]
    count = sum(one["kind"].startswith("positional") for one in old)
    added = [one for one in new if one not in old]
    in_front = any(one in added for one in positional[:count])
    return not in_front and all("default" in one or one["kind"].startswith("variable") for one in added)


def _layer(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    before, after = old.get("parameters", []), new.get("parameters", [])
    if before != after:  # `kernelize` wants the parameters of the layer it replaces, so an added one breaks too
        yield Difference(f"forward{signature(after)}, was forward{signature(before)}", breaks=True)
    for flag in ("has_backward", "can_torch_compile"):
        if old.get(flag) != new.get(flag):
            yield Difference(f"{flag} is {new.get(flag)}, was {old.get(flag)}", breaks=new.get(flag) is not True)


def _input(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    if old.get("shape") != new.get("shape"):
        yield Difference(f"shape is {new.get('shape')}, was {old.get('shape')}", breaks=True)
    if old.get("optional") != new.get("optional"):
        word = "optional" if new.get("optional") else "required"
        yield Difference(f"is {word} now", breaks=not new.get("optional"))
    yield from _members("dtype", old.get("dtypes", []), new.get("dtypes", []))


def _tolerance(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    same_form = all(old.get(key) == new.get(key) for key in ("atol_of_max", "sums"))
    looser = any(new.get(key, 0.0) > old.get(key, 0.0) for key in ("rtol", "atol", "factor"))
    yield Difference(f"{new.get('text')}, was {old.get('text')}", breaks=looser or not same_form)


def signature(parameters: Iterable[Mapping[str, str]]) -> str:
    """The parameters as Python writes them, without annotations."""
    parts: list[str] = []
    starred = False
    for one in parameters:
        if one["kind"] == "keyword" and not starred:
            parts.append("*")
            starred = True
        stars = {"variable positional": "*", "variable keyword": "**"}.get(one["kind"], "")
        starred = starred or stars == "*"
        parts.append(stars + one["name"] + (f"={one['default']}" if "default" in one else ""))
    return f"({', '.join(parts)})"


def _table(api: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = api.get(key)
    return value if isinstance(value, dict) else {}
