"""What one server has done since it started, in the text format that Prometheus reads."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "kernels_neuron_registry"
_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Metrics:
    """Counters of one app. `saw` is called once a request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._within: Counter[float] = Counter()
        self._seconds = 0.0

    def saw(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request: `route` is its pattern, so that the number of series stays small."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds += seconds
            self._within[next((bound for bound in _BUCKETS if seconds <= bound), float("inf"))] += 1

    def render(self, downloads: Mapping[tuple[str, str], int], repos: int) -> str:
        """The whole page. `downloads` are those of repos that everybody may see."""
        with self._lock:
            requests, within, seconds = dict(self._requests), dict(self._within), self._seconds
        lines = [*_head("requests_total", "counter", "Requests answered.")]
        for (method, route, status), count in sorted(requests.items()):
            lines.append(_line("requests_total", count, method=method, route=route, status=str(status)))
        lines += _head("handling_seconds", "histogram", "From the head of a request to its answer, without sending.")
        total = 0
        for bound in (*_BUCKETS, float("inf")):
            total += within.get(bound, 0)
            lines.append(_line("handling_seconds_bucket", total, le="+Inf" if bound == float("inf") else str(bound)))
        lines += [_line("handling_seconds_sum", seconds), _line("handling_seconds_count", total)]
        lines += _head("downloads_total", "counter", "Variants fetched, of repos that are not private.")
        for (repo, variant), count in sorted(downloads.items()):
            lines.append(_line("downloads_total", count, repo=repo, variant=variant))
        lines += [*_head("repos", "gauge", "Repos in the registry."), _line("repos", repos)]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, help: str) -> Iterable[str]:
    return (f"# HELP {_PREFIX}_{name} {help}", f"# TYPE {_PREFIX}_{name} {kind}")


def _line(name: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{_PREFIX}_{name}{{{inside}}} {value}" if inside else f"{_PREFIX}_{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
