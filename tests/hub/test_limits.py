"""The rate limit as a value, and the limits of a server as a client meets them."""

import http.client

import pytest

from kernels_neuron.errors import HubError
from kernels_neuron.hub.limits import RateLimit
from kernels_neuron.hub.serving import Settings, run_server
from kernels_neuron.hub.upload import connect, read_release, upload


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_passes_and_then_one_request_each_interval():
    clock = Clock()
    limit = RateLimit(2.0, burst=3, clock=clock)
    assert [limit.wait_seconds("a") for _ in range(4)] == [0, 0, 0, 1]
    assert limit.wait_seconds("b") == 0, "another caller has a bucket of its own"
    clock.now = 0.5
    assert [limit.wait_seconds("a") for _ in range(2)] == [0, 1]
    clock.now = 100.0
    assert [limit.wait_seconds("a") for _ in range(4)] == [0, 0, 0, 1], "the bucket holds no more than a burst"


def test_looking_costs_nothing_and_no_rate_is_no_limit():
    limit = RateLimit(1.0, burst=1, clock=Clock())
    assert [limit.wait_seconds("a", take=False) for _ in range(3)] == [0, 0, 0]
    assert [limit.wait_seconds("a"), limit.wait_seconds("a", take=False)] == [0, 1]
    assert not any(RateLimit().wait_seconds("a") for _ in range(1000))


def test_many_callers_do_not_fill_the_memory():
    limit = RateLimit(0.001, burst=2, clock=Clock())
    for i in range(25_000):
        limit.wait_seconds(str(i))
    assert len(limit._buckets) <= 10_000


def ask(server, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def test_a_caller_that_asks_too_often_gets_429_and_when_to_come_back(tmp_path):
    with run_server(tmp_path, settings=Settings(requests_per_second=0.1)) as server:
        wrong = {"Authorization": "Bearer hf_wrong"}
        statuses = [ask(server, "/api/whoami-v2", **wrong).status for _ in range(201)]
        assert statuses == [401] * 200 + [429], "trying tokens is limited too"
        answer = ask(server, "/health")
        assert answer.status == 429 and int(answer.headers["Retry-After"]) >= 1
        # another caller, known by the token and not by the address, is let through once the address may ask at all
        assert b"too many requests" in answer.read()


def test_a_registry_that_is_full_takes_no_more_and_says_what_to_do(tmp_path, build):
    with run_server(tmp_path / "registry", settings=Settings(max_registry_bytes=5000)) as server:
        api = connect(server.url, server.token)
        with pytest.raises(HubError, match=r"takes at most 5000 bytes in all; .* registry gc"):
            for factor in range(2, 30):
                upload(api, read_release(build(factor=factor)), "org")
        assert server.store.blobs.size() < 10_000


def test_a_commit_above_the_limit_is_413(tmp_path, kernel):
    with (
        run_server(tmp_path / "registry", settings=Settings(max_commit_bytes=100)) as server,
        pytest.raises(HubError, match="answered 413: the body takes at most 100 bytes"),
    ):
        upload(connect(server.url, server.token), read_release(kernel), "org")
