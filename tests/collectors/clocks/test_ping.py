"""Measurements over real sockets: slow ways, and peers that are lost, silent or strange."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from tracekit.collectors.clocks import server as serving
from tracekit.collectors.clocks.ping import MIN_EXCHANGES, PING, PONG, TOKEN_BYTES, measure

LOCAL = "127.0.0.1"
AHEAD_NS = 12_000_000_000


def behind_ns():
    """A clock of the host that asks, 12 s behind the reference's."""
    return time.time_ns() - AHEAD_NS


def connected(server, said):
    connection = socket.create_connection((LOCAL, server.port), timeout=5)
    connection.sendall(said)
    return connection


def is_closed(connection):
    """Whether the other side has closed, with or without having read all."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


@pytest.fixture
def peer():
    """A peer that knows the protocol as far as the test says: it runs `talk` with a connection."""
    threads = []

    def start(talk):
        listener = socket.create_server((LOCAL, 0))

        def run():
            with listener:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    talk(connection)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return LOCAL, listener.getsockname()[1]

    yield start
    for thread in threads:
        thread.join(10)


def answered(connection, n):
    """Answer that many exchanges with this machine's clock."""
    connection.recv(TOKEN_BYTES, socket.MSG_WAITALL)
    for _ in range(n):
        (number,) = PING.unpack(connection.recv(PING.size, socket.MSG_WAITALL))
        connection.sendall(PONG.pack(number, time.time_ns(), time.time_ns()))


def test_the_offset_of_a_shifted_clock_is_found(server, token):
    found = measure((LOCAL, server.port), token, now_ns=behind_ns)
    assert found.n == 200
    assert abs(found.offset_ns - AHEAD_NS) <= found.error_ns
    assert abs(behind_ns() - found.at_ns) < 5_000_000_000


@pytest.mark.parametrize(("there_s", "back_s"), [(0.002, 0.002), (0.002, 0.0), (0.0, 0.004)])
def test_a_way_that_takes_milliseconds_is_inside_the_error(server, token, relay, there_s, back_s):
    port = relay(server.port, there_s, back_s)
    found = measure((LOCAL, port), token, n=60, now_ns=behind_ns)
    assert found.min_delay_ns >= (there_s + back_s) * 1e9
    assert abs(found.offset_ns - AHEAD_NS) <= found.error_ns
    # What is unequal shows as half of the difference; 0.5 ms is for what the relay itself takes.
    assert abs(found.offset_ns - AHEAD_NS - (there_s - back_s) / 2 * 1e9) < 500_000


def test_a_slow_way_ends_at_the_deadline_with_what_there_is(server, token, relay):
    found = measure((LOCAL, relay(server.port, 0.01, 0.01)), token, deadline_s=1.0)
    assert MIN_EXCHANGES <= found.n < 50


def test_the_server_answers_hosts_at_once(server, token):
    found = []

    def ask(ahead_ns):
        asked = measure(
            (LOCAL, server.port), token, now_ns=lambda: time.time_ns() - ahead_ns, deadline_s=20
        )
        found.append((ahead_ns, asked))

    threads = [threading.Thread(target=ask, args=(k * 1_000_000_000,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for ahead_ns, offset in found:
        assert abs(offset.offset_ns - ahead_ns) <= offset.error_ns


def test_a_wrong_token_is_closed_at_once(server, token):
    with pytest.raises(ConnectionError, match="after 0 of 200 exchanges"):
        measure((LOCAL, server.port), token[::-1])
    with connected(server, b"x" * TOKEN_BYTES) as stranger:
        assert is_closed(stranger)
    assert server.n_known == 0


def test_a_stranger_who_says_too_much_or_too_early_is_closed(server, token):
    with connected(server, b"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: */*\r\n\r\n") as stranger:
        assert is_closed(stranger)
    with connected(server, token + PING.pack(0) * 20) as hasty:
        assert hasty.recv(PONG.size)
        with contextlib.suppress(ConnectionResetError):
            while hasty.recv(4096):
                pass
    assert measure((LOCAL, server.port), token).n == 200


def test_who_says_nothing_is_closed_and_keeps_nobody_waiting(server, token, monkeypatch):
    monkeypatch.setattr(serving, "IDLE_S", 0.2)
    with connected(server, token[:5]) as silent:
        assert measure((LOCAL, server.port), token).n == 200
        assert is_closed(silent)


def test_a_dribbling_stranger_gains_no_time(server, token, monkeypatch):
    monkeypatch.setattr(serving, "IDLE_S", 0.3)
    start_s = time.monotonic()
    with connected(server, token[:1]) as stranger, contextlib.suppress(OSError):
        stranger.settimeout(0.05)
        for k in range(1, TOKEN_BYTES):
            stranger.sendall(token[k : k + 1])
            with contextlib.suppress(TimeoutError):
                assert stranger.recv(1) == b""
                break
    assert time.monotonic() - start_s < 1.2


def test_more_connections_than_allowed_are_closed(server, token, monkeypatch):
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 1)
    with connected(server, token[:5]):
        time.sleep(0.1)
        with connected(server, token) as second:
            assert is_closed(second)


def test_nobody_there_is_an_error_at_once(token):
    with socket.create_server((LOCAL, 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        measure((LOCAL, port), token)


def test_a_peer_that_stalls_is_given_up(peer, token):
    start_s = time.monotonic()
    address = peer(lambda connection: connection.recv(1 << 16) and time.sleep(2))
    with pytest.raises(TimeoutError, match="after 0 of 200 exchanges"):
        measure(address, token)
    assert time.monotonic() - start_s < 2


def test_a_connection_lost_half_way_leaves_what_was_measured(peer, token):
    found = measure(peer(lambda connection: answered(connection, 120)), token)
    assert found.n == 120
    assert abs(found.offset_ns) <= found.error_ns


def test_a_connection_lost_early_is_an_error(peer, token):
    with pytest.raises(ConnectionError, match="after 19 of 200 exchanges"):
        measure(peer(lambda connection: answered(connection, 19)), token)


def test_an_answer_to_another_question_is_an_error(peer, token):
    def talk(connection):
        connection.recv(TOKEN_BYTES + PING.size, socket.MSG_WAITALL)
        connection.sendall(PONG.pack(99, 0, 0))

    with pytest.raises(ConnectionError, match="another question after 0"):
        measure(peer(talk), token)


def test_an_answer_in_pieces_is_put_together(peer, token):
    def talk(connection):
        connection.recv(TOKEN_BYTES, socket.MSG_WAITALL)
        for number in range(MIN_EXCHANGES):
            connection.recv(PING.size, socket.MSG_WAITALL)
            answer = PONG.pack(number, time.time_ns(), time.time_ns())
            connection.sendall(answer[:10])
            time.sleep(0.002)
            connection.sendall(answer[10:])

    assert measure(peer(talk), token, n=MIN_EXCHANGES).n == MIN_EXCHANGES
