"""The version gate: a release may replace a version only where no caller of what is there loses anything."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kernels_neuron.api import API, Difference, differences, parse
from kernels_neuron.errors import ArtifactError, HubError


class Narrowed(HubError):
    """The release takes something away from callers of the version it would replace."""


@dataclass(frozen=True)
class Verdict:
    """What the API of a release says otherwise than that of the same version at the target, variant by variant."""

    widens: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()

    def require_open(self, repo_id: str, version: int) -> None:
        """Raise Narrowed with every difference that breaks callers."""
        if not self.breaks:
            return
        listed = "".join(f"\n  {line}" for line in self.breaks)
        raise Narrowed(
            f"{repo_id} v{version} is published with another API:{listed}",
            hint=f"publish as a new version: set version = {version + 1} in kernel.toml",
        )


def judge(
    files: Mapping[str, bytes], touched: Iterable[str], there: Iterable[str], read: Callable[[str], bytes]
) -> Verdict:
    """Compare the variants of a release with those at the target.

    files    path in the repo -> bytes, of the release
    touched  the variants of which the release changes something
    there    the paths the target holds on the version's branch
    read     gives the bytes of one of these
    """
    present = sorted(path for path in there if path.startswith("build/"))
    kept = sorted(_variants(present) - _variants(files))
    widens: list[str] = []
    breaks: list[str] = []
    for variant in sorted(touched):
        path = f"build/{variant}/{API}"
        if path in present:
            for one in _differences(files, path, read(path)):
                (breaks if one.breaks else widens).append(f"{variant}: {one.text}")
        elif any(other.startswith(f"build/{variant}/") for other in present):
            breaks.append(f"{variant}: the one there has no {API}, so nothing says what its callers rely on")
    if kept:
        # one version would then mean two things, depending on the machine
        breaks += [f"{line}, and {', '.join(kept)} would stay as it is" for line in widens]
    return Verdict(tuple(widens), tuple(breaks))


def _variants(files: Iterable[str]) -> set[str]:
    return {path.split("/")[1] for path in files if path.startswith("build/")}


def _differences(files: Mapping[str, bytes], path: str, before: bytes) -> list[Difference]:
    try:
        old = parse(before, path)
    except ArtifactError as error:
        raise HubError(f"the target's {error}", hint=error.hint) from error
    if path not in files:
        raise ArtifactError(f"{path} is missing in the build", hint="run kernels-neuron build again")
    return differences(old, parse(files[path], path))
