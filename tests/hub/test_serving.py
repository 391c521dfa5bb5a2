"""Starting and stopping a registry, in a thread and as a process."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernels_neuron.errors import HubError
from kernels_neuron.hub import serving
from kernels_neuron.hub.serving import run_server
from kernels_neuron.hub.store import Store


def get(url: str, path: str = "/health") -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    connection.request("GET", path)
    return connection.getresponse().status


def test_a_server_answers_inside_the_block_and_is_gone_after_it(tmp_path):
    with run_server(tmp_path / "registry") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert get(server.url) == 200
    with pytest.raises(ConnectionRefusedError):
        get(server.url)
    assert "registry" not in [thread.name for thread in threading.enumerate()]


def test_a_server_stops_also_when_the_block_raises(tmp_path):
    with pytest.raises(ZeroDivisionError), run_server(tmp_path) as server:
        raise ZeroDivisionError
    with run_server(tmp_path, port=int(server.url.rpartition(":")[2])) as again:
        assert again.url == server.url


def test_two_servers_over_one_folder_are_refused(tmp_path):
    with run_server(tmp_path), pytest.raises(HubError, match="is being served already"), run_server(tmp_path):
        pass


def test_a_port_in_use_is_one_clear_error(tmp_path):
    with run_server(tmp_path / "a") as server:
        port = int(server.url.rpartition(":")[2])
        with (
            pytest.raises(HubError, match=f"cannot listen on 127.0.0.1 port {port}") as error,
            run_server(tmp_path / "b", port=port),
        ):
            pass
    assert "--port" in error.value.hint


def test_a_start_removes_what_a_crash_left(tmp_path):
    store = Store(tmp_path)
    (tmp_path / "scratch" / "half.part").write_bytes(b"torn")
    with run_server(store.root):
        assert list((tmp_path / "scratch").iterdir()) == []


def test_answers_do_not_wait_for_a_fuller_packet():
    with serving._bound("127.0.0.1", 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP


def test_a_connection_is_kept_for_longer_than_clients_keep_it(tmp_path):
    # httpx drops an idle connection after 5 s; a server that does so at the same moment resets requests on their way
    server = serving._uvicorn(Store(tmp_path), serving.Settings(), Store(tmp_path).tokens)
    assert server.config.timeout_keep_alive > 30


def test_the_servers_own_token_is_not_kept(tmp_path):
    with run_server(tmp_path) as server:
        assert server.token
    assert Store(tmp_path).tokens.find(server.token) is None


def start(root: Path, *options: str) -> subprocess.Popen:
    code = "import sys; from kernels_neuron.cli.main import main; main(sys.argv[1:])"
    argv = [sys.executable, "-c", code, "registry", "serve", "--root", str(root), "--port", "0", *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


def test_the_command_prints_its_url_and_the_first_token_once_and_ends_on_interrupt(tmp_path):
    process = start(tmp_path)
    url = process.stdout.readline().strip()
    assert get(url) == 200
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    token = next(word for word in said.split() if word.startswith("hf_"))
    assert Store(tmp_path).tokens.find(token).may("admin", "any/repo")
    assert process.returncode == 0, said

    again = start(tmp_path)
    assert get(again.stdout.readline().strip()) == 200
    again.send_signal(signal.SIGINT)
    assert "hf_" not in again.communicate(timeout=30)[1]
