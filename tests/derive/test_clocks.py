"""Which clock each rank has, whether it can be used, and that findings do not hang on it (µs)."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace

import polars as pl
import pytest

import tracekit
from tracekit.derive.clocks import clocks
from tracekit.derive.waits import waits
from tracekit.facts import ClockReading
from tracekit.findings import Status
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded
from tracekit.store import write_json

TORCHREC = "traces/pytorch+torchrec/examples/golden_training/trace"


def meetings(runs, ahead_us, *, n=20, late_us=None, jitter_us=0):
    """`n` collectives of as many ranks as clocks, which are ahead by so many µs each.

    All leave together, give or take the jitter; `late_us` of a rank is how much later it enters.
    """
    late_us, generator = late_us or {}, random.Random(1)
    traces = {rank: runs.Trace() for rank in range(len(ahead_us))}
    for number in range(n):
        at = 1_000 * number + generator.uniform(0, 400)  # else every shift of the lists fits
        for rank, trace in traces.items():
            enters = at + late_us.get(rank, 0) + ahead_us[rank]
            leaves = at + 500 + ahead_us[rank] + generator.uniform(0, jitter_us)
            members = list(range(len(ahead_us)))
            trace.collective(enters, leaves - enters, members=members)
    return traces


def on_hosts(run, hosts):
    """The run, with the host of each rank."""
    captures = tuple(
        replace(capture, host=host)
        for capture, host in zip(run.manifest.captures, hosts, strict=True)
    )
    manifest = replace(run.manifest, captures=captures)
    write_json(run.folder / "manifest.json", manifest)
    return tracekit.open_run(run.folder)


def test_ranks_of_unknown_hosts_have_clocks_of_their_own(make_run, runs):
    found = clocks(make_run(meetings(runs, [0, 700, -300])))
    assert found["clock"].to_list() == ["rank 0", "rank 1", "rank 2"]
    assert found["offset_ns"].to_list() == pytest.approx([0, 700_000, -300_000], abs=1)
    assert found["is_usable"].all()
    assert set(found["source"]) == {"collective ends"}


def test_clocks_put_together_without_a_residual_are_not_one(make_run, runs):
    run = make_run(meetings(runs, [0, 0]))
    assert clocks(run)["error_ns"].to_list() == [0.0, 0.0]
    assert tracekit.analyze(run, engine="local:1").run.clock_error_ns == 1.0  # stamps are whole ns
    one = on_hosts(make_run(meetings(runs, [0, 0])), ["a", "a"])
    assert tracekit.analyze(one, engine="local:1").run.clock_error_ns == 0.0


def test_ranks_of_one_host_share_its_clock(make_run, runs):
    run = on_hosts(make_run(meetings(runs, [0, 0, 500, 500], jitter_us=5)), ["a", "a", "b", "b"])
    found = clocks(run)
    assert found["clock"].to_list() == ["a", "a", "b", "b"]
    assert found["offset_ns"].to_list() == pytest.approx([0, 0, 500_000, 500_000], abs=5_000)


def test_one_host_is_one_clock_without_an_error(make_run, runs):
    found = clocks(on_hosts(make_run(meetings(runs, [0, 0, 0])), ["a", "a", "a"]))
    assert set(found["source"]) == {"one clock"}
    assert found["error_ns"].to_list() == [0, 0, 0]


@pytest.mark.parametrize(("apart_us", "clock"), [(15, "a"), (25, "rank 3")])
def test_a_rank_that_contradicts_its_host_gets_its_own_clock(make_run, runs, apart_us, clock):
    # 20 µs is the limit: ends of one host's ranks that lie further apart, constantly
    run = on_hosts(make_run(meetings(runs, [0, 0, 0, apart_us])), ["a"] * 4)
    found = clocks(run)
    assert found["clock"].to_list() == ["a", "a", "a", clock]
    assert found["is_usable"].all()


@pytest.mark.parametrize(("n", "is_usable"), [(8, True), (7, False)])
def test_clocks_that_share_too_few_collectives_are_not_used(make_run, runs, n, is_usable):
    run = make_run(meetings(runs, [0, 400], n=n))
    assert clocks(run)["is_usable"].to_list() == [is_usable] * 2
    rows = waits(run).collect()
    assert rows["aligned_wait_ns"].is_null().all() != is_usable
    assert rows["wait_ns"].is_not_null().all()  # the clock-free estimator remains


def test_collectives_that_end_before_a_member_enters_forbid_the_clocks(make_run, runs):
    traces = meetings(runs, [0, 0], n=40)
    for row in traces[1].rows["collectives"][::8]:  # mismatched: one in eight lies elsewhere
        row["start_ns"] += 600_000
    for row in traces[1].rows["kernels"][::8]:
        row["start_ns"] += 600_000
    found = clocks(make_run(traces))
    assert not found["is_usable"].any()
    assert set(found["source"]) == {"contradicted: collectives end before a member enters"}


def test_a_rank_alone_in_its_groups_is_compared_with_nobody(make_run, runs, trace):
    traces = meetings(runs, [0, 0])
    traces[2] = trace.kernel(0, 100)
    found = clocks(make_run(traces))
    assert found["is_usable"].to_list() == [True, True, False]
    assert found["source"][2] == "shares no collective with another clock"


def read_against(run, readings):
    """The run, with what was measured for each rank: (at, offset to add) in µs, against host a."""
    captures = tuple(
        replace(
            capture,
            host=f"host {capture.rank}",
            clocks=tuple(
                ClockReading(
                    at_ns=at * 1000, offset_ns=offset * 1000, error_ns=5_000, reference="a"
                )
                for at, offset in own
            ),
        )
        for capture, own in zip(run.manifest.captures, readings, strict=True)
    )
    write_json(run.folder / "manifest.json", replace(run.manifest, captures=captures))
    return tracekit.open_run(run.folder)


def test_hosts_that_share_too_few_collectives_are_put_together_by_their_readings(make_run, runs):
    # Rank 1 is ahead by 400 µs at the start and by 500 µs a second later: 100 ppm.
    run = make_run(meetings(runs, [0, 400], n=3))
    run = read_against(run, [[(0, 0), (1_000_000, 0)], [(0, -400), (1_000_000, -500)]])
    found = clocks(run)
    assert found["source"].to_list() == ["readings"] * 2
    assert found["offset_ns"].to_list() == [0, 400_000]
    assert found["drift"].to_list() == pytest.approx([0, 1e-4])
    assert found["error_ns"].to_list() == [5_000, 5_000]
    rows = waits(run).collect()
    assert rows["aligned_wait_ns"].to_list() == pytest.approx([0] * len(rows), abs=1_000)


def test_ends_of_collectives_say_more_than_readings(make_run, runs):
    run = make_run(meetings(runs, [0, 400]))
    found = clocks(read_against(run, [[(0, 0)], [(0, -700)]]))
    assert set(found["source"]) == {"collective ends"}


def test_one_clock_that_was_read_is_compared_with_nobody(make_run, runs):
    run = make_run(meetings(runs, [0, 400], n=3))
    found = clocks(read_against(run, [[(0, 0)], []]))
    assert not found["is_usable"].any()


def test_both_estimators_agree_and_their_error_says_how_well(make_run, runs):
    run = make_run(meetings(runs, [0, 9_000, 0], late_us={2: 200}))
    rows = waits(run).collect()
    assert rows.group_by("rank").agg(pl.col("wait_ns").unique()).sort("rank")[
        "wait_ns"
    ].to_list() == [[200_000], [200_000], [0]]
    assert (rows["wait_ns"] - rows["aligned_wait_ns"]).abs().max() <= 2
    assert rows["error_ns"].max() <= 2


def test_the_error_holds_what_the_estimators_differ_by_and_the_spread_of_the_ends(make_run, runs):
    traces = meetings(runs, [0, 0, 0], n=40)
    for name in ("collectives", "kernels"):
        traces[1].rows[name][20]["dur_ns"] += 90_000  # leaves one of them by 90 µs later
    rows = waits(make_run(traces)).collect()
    worst = rows.filter(pl.col("error_ns") > 10_000)
    assert worst["instance"].n_unique() == 1
    assert worst["error_ns"].unique().to_list() == [90_000]
    assert worst.filter(rank=1)["tail_ns"].to_list() == [90_000]


def test_simulated_clocks_with_offset_and_drift_are_put_together(tmp_path):
    job = Job(seed=3, n_steps=10)
    recorded(job, tmp_path, offset_ns={1: 12_000_000_000, 3: -5_000_000}, drift_ppm={3: 50.0})
    found = clocks(tracekit.convert(tmp_path, tmp_path / "run"))
    assert found["offset_ns"][1] == pytest.approx(12e9, abs=20_000)
    assert found["offset_ns"][3] == pytest.approx(-5e6, abs=40_000)  # 50 ppm of half a second
    assert found["is_usable"].all()


def findings(run):
    """What a result says, without times and without what depends on where the run begins."""
    result = tracekit.analyze(run, engine="local:1")
    return [
        (f.id, f.status, f.cause, f.ranks, round(f.measured.value, 3) if f.measured else None)
        for f in result.findings
    ]


def test_a_planted_straggler_is_the_same_on_clocks_that_differ(tmp_path):
    job = Job(seed=2, faults=Faults(compute_factor={2: 1.3}))
    same, apart = tmp_path / "same", tmp_path / "apart"
    same.mkdir()
    apart.mkdir()
    recorded(job, same)
    recorded(job, apart, offset_ns={0: 3_700_000_000, 3: -900_000}, drift_ppm={1: 40.0})
    assert findings(tracekit.convert(same, tmp_path / "one")) == findings(
        tracekit.convert(apart, tmp_path / "two")
    )


@pytest.mark.parametrize(
    "name", ["sst_sleep_pl_dense_after_backward_2", "sst_long_a2a_optimizer_3"]
)
def test_findings_of_real_ranks_do_not_change_with_their_clocks(traces, tmp_path, name):
    shifted = tmp_path / "shifted"
    shifted.mkdir()
    sources = sorted(path for path in (traces / TORCHREC / name).iterdir() if path.is_file())
    for number, source in enumerate(sources):
        opener = gzip.open if source.suffix == ".gz" else open
        with opener(source, "rt") as file:
            trace = json.load(file)
        if number % 2:
            for event in trace["traceEvents"]:
                if "ts" in event:
                    event["ts"] = event["ts"] + 3_700_000 + 250 * number
        (shifted / source.name.removesuffix(".gz")).write_text(json.dumps(trace))
    before = findings(tracekit.convert(traces / TORCHREC / name, tmp_path / "before"))
    after = findings(tracekit.convert(shifted, tmp_path / "after"))
    assert after == before
    assert (Status.FOUND, (2,)) in {(status, ranks) for _, status, _, ranks, _ in after}
