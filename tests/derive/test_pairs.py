"""Messages by pair of ranks and of hosts."""

from __future__ import annotations

from tracekit.derive.pairs import pairs


def messages(runs, *ends, nbytes=1_000_000):
    """Messages of 10 µs between these senders and receivers."""
    traces = {rank: runs.Trace() for rank in range(1 + max(max(pair) for pair in ends))}
    for number, (sender, receiver) in enumerate(ends):
        for rank, operation in ((sender, "send"), (receiver, "recv")):
            key = "destination_rank" if operation == "send" else "source_rank"
            peer = receiver if operation == "send" else sender
            values = {"members": list(traces), "bytes_in": nbytes, key: peer}
            traces[rank].collective(100 * number, 10, operation, **values)
    return traces


def test_bytes_calls_and_bandwidth_of_each_way(make_run, runs):
    rows = pairs(make_run(messages(runs, (0, 1), (0, 1), (1, 0)))).rows(named=True)
    assert [(r["sender"], r["receiver"], r["n_calls"], r["total_bytes"]) for r in rows] == [
        ("0", "1", 2, 2_000_000),
        ("1", "0", 1, 1_000_000),
    ]
    assert rows[0]["p50_ns"] == 10_000
    assert rows[0]["busbw_gb_s"] == 100.0  # 1 MB in 10 µs


def test_hosts_add_up_what_their_ranks_send(make_run, runs):
    run = make_run(messages(runs, (0, 2), (1, 3)), hosts=[(0, "a"), (1, "a"), (2, "b"), (3, "b")])
    (of_hosts, *of_ranks) = pairs(run).rows(named=True)
    assert (of_hosts["sender"], of_hosts["receiver"]) == ("a", "b")
    assert (of_hosts["is_hosts"], of_hosts["n_calls"]) == (True, 2)
    assert len(of_ranks) == 2


def test_without_messages_there_are_no_pairs(make_run, runs):
    trace = runs.Trace().collective(0, 10)
    assert pairs(make_run(trace)).is_empty()
