"""`batchline serve` as a process: what it says, one listener for all workers, the access log, and how it stops."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from batchline.cli import serve

ADDRESS = re.compile(r"http://[^\s)]+")
STOPPED = (0, -signal.SIGTERM)
"""One process ends by the signal that it was sent, once it is done; several end with their parent."""


@pytest.fixture
def start():
    """Start the server on a free port; give the process and its address."""
    started = []

    def begin(*options):
        command = [sys.executable, "-m", "batchline", "serve", "--port", "0", *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started.append(process)
        said = []
        for line in process.stderr:
            said.append(line)
            if found := ADDRESS.search(line):
                return process, found[0].replace("localhost", "127.0.0.1"), said
        raise AssertionError("".join(said))

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def fetch(address, headers=None):
    """Ask; give status and body."""
    request = urllib.request.Request(address, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.slow
def test_workers_answer_from_one_address_and_stop_when_told(start):
    process, base, _ = start("--workers", "2")
    status, body = fetch(f"{base}/api/v1/curve?model=llama-3.1-8b&on=h100&context=8k")
    assert status == 200
    assert json.loads(body)["model"] == "llama-3.1-8b"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) in STOPPED


def test_what_workers_share_sends_small_answers_at_once():
    with (
        serve._listening("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_worker_takes_one_connection_and_leaves_the_next():
    with serve._listening("127.0.0.1", 0) as listener:
        waiting = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        for one in waiting:
            listener.accept()[0].close()
            with pytest.raises(BlockingIOError):
                listener.accept()
            one.close()


def test_the_access_log_is_a_line_of_json_for_each_request(start):
    process, base, _ = start()
    assert fetch(f"{base}/health?a=1")[0] == 200
    assert fetch(f"{base}/nothing%3Cscript%3E")[0] == 404
    first, second = (json.loads(process.stderr.readline()) for _ in range(2))
    assert {"client": "127.0.0.1", "method": "GET", "path": "/health", "query": "a=1", "status": 200}.items() <= (
        first.items()
    )
    assert (second["status"], second["path"]) == (404, "/nothing<script>")
    assert {"time", "bytes", "ms"} <= first.keys()


def test_a_request_in_progress_is_answered_before_it_stops(start):
    process, base, _ = start("--no-log")
    body = json.dumps({"model": "llama-3.1-8b", "on": "h100", "context": 8192}).encode()
    head = f"POST /api/v1/curve HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", int(base.rsplit(":", 1)[1])), timeout=60) as asked:
        asked.sendall(f"{head}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
        assert asked.recv(4096).startswith(b"HTTP/1.1 100")  # the server waits for the body
        process.send_signal(signal.SIGTERM)
        asked.sendall(body)
        assert asked.recv(4096).startswith(b"HTTP/1.1 200")
    assert process.wait(timeout=60) in STOPPED


@pytest.mark.slow
def test_open_to_others_it_warns_and_answers_any_name(start):
    _, base, said = start("--host", "0.0.0.0", "--no-log")  # noqa: S104
    assert "everybody" in "".join(said)
    assert fetch(f"{base}/health", {"host": "elsewhere.example"})[0] == 200


@pytest.mark.slow
def test_on_this_machine_alone_a_foreign_name_is_refused(start):
    _, base, said = start("--no-log", "--name", "plan.example.com")
    assert len(said) == 1
    assert fetch(f"{base}/health", {"host": "plan.example.com"})[0] == 200
    status, body = fetch(f"{base}/health", {"host": "elsewhere.example"})
    assert status == 421
    assert "elsewhere.example" in json.loads(body)["problem"]


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = CliRunner().invoke(serve.command, ["--port", str(port)])
    assert answer.exit_code != 0
    assert str(port) in str(answer.exception)
    assert "--port" in str(answer.exception)
    assert "BATCHLINE_HOSTS" not in os.environ
