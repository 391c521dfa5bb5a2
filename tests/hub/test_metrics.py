"""/metrics and the download counts it shows."""

import http.client
import logging

from kernels_neuron.hub.metrics import Metrics
from kernels_neuron.hub.storage.downloads import Downloads
from kernels_neuron.hub.store import Store
from kernels_neuron.hub.upload import connect, read_release, upload


def fetch(server, method: str, path: str, token: str | None = None) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers.get("Content-Type", "")


def samples(page: str) -> dict[str, float]:
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_requests_and_downloads_are_counted_by_route_and_variant(server, kernel):
    upload(connect(server.url, server.token), read_release(kernel), "org", private=False)
    upload(connect(server.url, server.token), read_release(kernel), "secret", private=True)
    metadata = "/kernels/{}/neuron-double/resolve/v1/build/torch-cpu/metadata.json"
    counted = dict(server.store.downloads.all())
    for _ in range(3):
        assert fetch(server, "GET", metadata.format("org"))[0] == 200
    fetch(server, "HEAD", metadata.format("org"))
    fetch(server, "GET", metadata.format("secret"), server.token)
    fetch(server, "GET", "/nope")
    status, page, kind = fetch(server, "GET", "/metrics")
    assert status == 200 and kind.startswith("text/plain; version=0.0.4")
    found = samples(page)
    name = 'kernels_neuron_registry_downloads_total{repo="org/neuron-double",variant="torch-cpu"}'
    assert found[name] == counted["org/neuron-double", "torch-cpu"] + 3
    assert "secret" not in page
    assert found['kernels_neuron_registry_requests_total{method="GET",route="none",status="404"}'] == 1
    assert found["kernels_neuron_registry_repos"] == 2
    bucket = found['kernels_neuron_registry_handling_seconds_bucket{le="+Inf"}']
    assert bucket == found["kernels_neuron_registry_handling_seconds_count"] > 10
    info = connect(server.url, server.token).kernel_info("org/neuron-double")
    assert info.downloads == counted["org/neuron-double", "torch-cpu"] + 3


def test_labels_are_escaped_and_the_histogram_grows():
    metrics = Metrics()
    for seconds in (0.0005, 0.02, 99.0):
        metrics.saw("GET", 'a"b\\c\nd', 200, seconds)
    page = metrics.render({}, 0)
    assert r'route="a\"b\\c\nd"' in page
    found = samples(page)
    buckets = [
        found[f'kernels_neuron_registry_handling_seconds_bucket{{le="{le}"}}'] for le in ("0.001", "0.025", "+Inf")
    ]
    assert buckets == [1, 2, 3]


def test_downloads_survive_a_restart_and_a_damaged_file_is_no_reason_to_stop(tmp_path):
    now = [0.0]
    counts = Downloads(tmp_path / "downloads.json", tmp_path, clock=lambda: now[0])
    counts.add("org/k", "torch-cpu")
    assert not (tmp_path / "downloads.json").exists()
    now[0] = 6.0
    counts.add("org/k", "torch-cpu")
    counts.add("org/k", "torch-neuron")
    counts.flush()
    again = Downloads(tmp_path / "downloads.json", tmp_path)
    assert again.of("org/k") == {"torch-cpu": 2, "torch-neuron": 1}
    (tmp_path / "downloads.json").write_text("{")
    assert again.of("org/k") == {}


def test_the_access_log_names_caller_path_status_and_size(server, caplog):
    with caplog.at_level(logging.INFO, logger="kernels_neuron.registry.access"):
        fetch(server, "GET", "/health")
        fetch(server, "GET", "/api/whoami-v2", server.token)
        fetch(server, "GET", "/x%0Ay")
    lines = [record.message for record in caplog.records if record.name == "kernels_neuron.registry.access"]
    assert lines[0].startswith('127.0.0.1 - "GET /health" 200 15 ')
    assert lines[1].startswith('127.0.0.1 local "GET /api/whoami-v2" 200 ')
    assert lines[2].startswith('127.0.0.1 - "GET /x%0Ay" 404 ')


def test_counts_are_written_when_a_server_stops(tmp_path, kernel):
    from kernels_neuron.hub.serving import run_server

    with run_server(tmp_path) as server:
        upload(connect(server.url, server.token), read_release(kernel), "org")
        fetch(server, "GET", "/kernels/org/neuron-double/resolve/v1/build/torch-cpu/metadata.json")
    assert Store(tmp_path).downloads.of("org/neuron-double")["torch-cpu"] >= 1
