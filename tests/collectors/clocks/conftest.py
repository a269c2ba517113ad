"""Hosts that are processes of this machine, with clocks that are off by what the test says."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tracekit.collectors.clocks.server import Server

PROGRAM = """
import sys, time
from tracekit.collectors.clocks.__main__ import main
start_ns, ahead_ns, drift_ppm = time.time_ns(), int(sys.argv[1]), int(sys.argv[2])
def now_ns():
    real_ns = time.time_ns()
    return real_ns + ahead_ns + (real_ns - start_ns) * drift_ppm // 1_000_000
sys.exit(main(sys.argv[3:], now_ns=now_ns))
"""


@dataclass
class Host:
    """A running clock process and the file that it writes."""

    process: subprocess.Popen
    path: Path

    def lines(self):
        text = self.path.read_text("utf-8") if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, n_lines, timeout_s=20):
        end_s = time.monotonic() + timeout_s
        while len(lines := self.lines()) < n_lines:
            assert time.monotonic() < end_s, lines
            time.sleep(0.02)
        return lines

    def end(self, timeout_s=20):
        self.process.terminate()
        assert self.process.wait(timeout_s) == 0
        return self.lines()


@dataclass
class Hosts:
    """Starts clock processes on one run folder, in a network namespace each where one is named."""

    folder: Path
    started: list[Host] = field(default_factory=list)

    def start(self, name, *arguments, ahead_ns=0, drift_ppm=0, namespace=None):
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        program = [sys.executable, "-c", PROGRAM, str(ahead_ns), str(drift_ppm)]
        asked = [str(self.folder), "--host", name, *map(str, arguments)]
        process = subprocess.Popen([*inside, *program, *asked])
        self.started.append(Host(process, self.folder / "clocks" / f"host={name}.jsonl"))
        return self.started[-1]


@pytest.fixture
def hosts(tmp_path):
    """Clock processes that share a run folder; none is left when the test ends."""
    all_of_them = Hosts(tmp_path / "run")
    yield all_of_them
    for host in all_of_them.started:
        host.process.kill()
        host.process.wait()


@pytest.fixture
def token():
    return b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def server(token):
    """A reference that answers in a thread until the test ends."""
    is_over = threading.Event()
    with Server(token) as serving:

        def serve():
            while not is_over.is_set():
                serving.serve(0.02)

        thread = threading.Thread(target=serve)
        thread.start()
        yield serving
        is_over.set()
        thread.join()


@dataclass
class Relay:
    """Passes bytes between two ports, each direction as late as it is told to."""

    target_port: int
    there_s: float
    back_s: float
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self):
        return self.listener.getsockname()[1]

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target_port))
                for source, sink, late_s in ((near, far, self.there_s), (far, near, self.back_s)):
                    sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=passed, args=(source, sink, late_s)).start()


def passed(source, sink, late_s):
    """Pass on what comes, until one end closes; then close both."""
    with source, sink, contextlib.suppress(OSError):
        while data := source.recv(4096):
            time.sleep(late_s)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay():
    """Start relays to a port of this machine."""
    started = []

    def start(target_port, there_s, back_s):
        started.append(Relay(target_port, there_s, back_s))
        threading.Thread(target=started[-1].run).start()
        return started[-1].port

    yield start
    for each in started:
        each.listener.shutdown(socket.SHUT_RDWR)
        each.listener.close()
