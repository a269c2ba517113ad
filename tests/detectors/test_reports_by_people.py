"""Symptoms that people reported, each with its right diagnosis and the tempting wrong one.

The names are those of the reports: a pull request, an issue, a study.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tracekit
from tracekit.findings import Cause, Level, Severity, Status
from tracekit.sample_traces import scenarios
from tracekit.sample_traces.simulator.job import Faults, Job, each_step
from tracekit.sample_traces.simulator.recorded import recorded

STEP_US = 40_000
HOST_CAUSES = {Cause.HOST_OTHER, Cause.HOST_PAUSE, Cause.SLOW_HOST, Cause.LAUNCH_OVERHEAD}


def loud(result):
    """Findings above a note, by detector."""
    return {
        f.id: f
        for f in result.findings
        if f.status is Status.FOUND and f.severity is not Severity.INFO
    }


@pytest.fixture
def simulated(tmp_path):
    """The result of a simulated job."""

    def analysed(job, **how):
        recorded(job, tmp_path, **how)
        return tracekit.analyze(tmp_path, engine="local:1")

    return analysed


def sharded(runs, stall_us, *, n_ranks=8, n_steps=6, n_layers=8):
    """Fully sharded training: an all-gather before each layer, of `n_ranks`; ends of the steps.

    Gathers of two layers may be in flight: then the host waits for the layer before this one.
    `stall_us(rank, step, layer)` is how long it then sits in `_pre_forward` before it launches.
    """
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    ended = []
    for step in range(1, n_steps + 1):
        at = STEP_US * step
        ran = dict.fromkeys(traces, at)  # when the layer before did
        free = dict.fromkeys(traces, at)  # when the host goes on
        left = at
        for trace in traces.values():
            trace.step(step, at - 50, STEP_US)
        for layer in range(n_layers):
            launches = {r: free[r] + 8 + stall_us(r, step, layer) for r in traces}
            enters = {rank: max(launched + 10, left) for rank, launched in launches.items()}
            left = max(enters.values()) + 300
            for rank, trace in traces.items():
                launched = launches[rank]
                if stall_us(rank, step, layer):
                    begun = launched - stall_us(rank, step, layer)
                    trace.op(begun, launched - begun, "FullyShardedDataParallel._pre_forward")
                trace.collective(
                    enters[rank],
                    left - enters[rank],
                    "all_gather",
                    launched=launched,
                    members=list(traces),
                )
                trace.call(launched + 1, 1, "cudaStreamWaitEvent", role="stream-wait")
                begins = max(left, ran[rank])
                trace.kernel(begins, 2_000, "gemm", launched=launched + 2)
                free[rank] = max(ran[rank] + 2, launched + 5)
                waited = free[rank] - (launched + 4)
                trace.call(launched + 4, waited, "cudaEventSynchronize", role="sync")
                ran[rank] = begins + 2_000
        ended.append(max(ran.values()) - at)
    return traces, ended


def test_s1_long_all_gathers_are_waiting_for_a_host_that_stalls_by_turns(make_run, runs):
    # In each step two of eight all-gathers take 8 ms instead of 0.3, another rank late each time.
    def stall_us(rank, step, layer):
        return 8_000 if layer in (2, 5) and rank == (step + layer) % 8 else 0

    traces, ended = sharded(runs, stall_us)
    _, healthy = sharded(runs, lambda *_: 0)
    result = tracekit.analyze(make_run(traces), engine="local:1")
    found = loud(result)["straggler-rank"]
    assert (found.subject, found.cause in HOST_CAUSES) == ("rotating", True)
    saved_ns = 1000 * (sum(ended) - sum(healthy)) / len(ended)
    assert found.saving.per_step_ns.high == pytest.approx(saved_ns, rel=0.1)
    assert "exposed-communication" not in loud(result)  # no word of the network or of prefetching


def test_s2_pauses_that_rotate_in_no_operator_are_likely_garbage_collection(simulated):
    job = Job(n_dp=16, n_steps=8, seed=5)
    pauses = {(5 * step % 16, step): 40_000_000 for step in job.steps}
    found = loud(simulated(Job(n_dp=16, n_steps=8, seed=5, faults=Faults(pause_ns=pauses))))
    pause = found["host-pause"]
    assert pause.cause is Cause.HOST_PAUSE
    assert "Garbage collection" in pause.recommendation.text
    assert "gc.disable()" in pause.recommendation.commands[0]
    assert not {f.cause for f in found.values()} & {Cause.SLOW_DEVICE, Cause.THROTTLED_DEVICE}


def test_s3_full_collections_on_another_rank_and_step_each_time_are_no_data_loading(simulated):
    job = Job(n_dp=8, n_steps=10, seed=6)
    pauses = {(3, 12): 1_250_000_000, (6, 15): 1_460_000_000, (0, 18): 1_300_000_000}
    found = loud(simulated(Job(n_dp=8, n_steps=10, seed=6, faults=Faults(pause_ns=pauses))))
    assert job.steps[0] < 12
    assert found["host-pause"].ranks == (0, 3, 6)
    assert found["host-pause"].confidence.level.value in ("low", "medium")
    assert Cause.INPUT_PIPELINE not in {f.cause for f in found.values()}


def test_s7_a_gpu_that_enters_last_in_every_collective_is_a_straggler_at_a_fixed_place(simulated):
    result = simulated(Job(seed=7, faults=Faults(compute_factor={3: 1.4})))
    found = loud(result)["straggler-rank"]
    assert (found.ranks, found.scope.victims) == ((3,), (0, 1, 2))
    assert found.cause is Cause.SLOW_DEVICE
    assert "in every step" in found.why
    for asked in ("clocks", "temperature", "power"):
        assert asked in " ".join((found.recommendation.text, *found.recommendation.commands))
    assert result.findings[0].id == "straggler-rank"


def test_s11_a_short_all_reduce_that_takes_long_in_training_is_waiting(simulated):
    job = Job(
        n_dp=4,
        gradient_ns=400_000,
        seed=8,
        faults=Faults(pause_ns=each_step(1, 188_000_000)),
    )
    result = simulated(job)
    assert loud(result)["straggler-rank"].ranks == (1,)
    waited = [part for part in result.breakdown if part.is_averaged and part.rank != 1]
    for part in waited:  # the device looks busy, and almost all of it is waiting
        assert part.exposed_waiting_ns > 100 * max(part.exposed_transfer_ns, 1)
    assert "exposed-communication" not in loud(result)


def test_s20_experts_hidden_by_the_barrier_are_told_by_layer(make_run, runs):
    # Every layer takes 91.2 µs on all ranks: 63.0 of products and 28.2 of exchange on one of them,
    # 56.8 and 34.4 on the others; which rank has more changes from layer to layer.
    n_layers, n_steps = 16, 6
    traces = {rank: runs.Trace() for rank in range(4)}
    for step in range(1, n_steps + 1):
        at = 10_000 * step
        for trace in traces.values():
            trace.step(step, at - 50, 10_000)
        for layer in range(n_layers):
            for rank, trace in traces.items():
                busy = 63.0 if rank == layer % 4 else 56.8
                for name, start, dur in (
                    ("dispatch", at, 10.0),
                    ("experts", at + 10, busy),
                    ("combine", at + 10 + busy, 91.2 - 10 - busy + 10),
                ):
                    if name == "experts":
                        trace.kernel(start, dur, "grouped_gemm_kernel", launched=at - 40)
                    else:
                        trace.collective(start, dur, "all_to_all", launched=at - 40)
            at += 101.2
    result = tracekit.analyze(make_run(traces), engine="local:1")
    (found,) = (f for f in result.findings if f.id == "expert-imbalance")
    gain_ns = (63.0 - (63.0 + 3 * 56.8) / 4) * 1000  # max − mean a layer
    step_ns = result.run.step_ns
    assert found.measured.value == pytest.approx(n_layers * gain_ns / step_ns, rel=0.01)


def test_s25_a_loader_that_stalls_another_rank_each_epoch_is_no_bad_node(simulated):
    plain = Job(n_dp=4, n_steps=9, seed=9)
    loader = {((step // 3) % 4, step): 30_000_000 for step in plain.steps if step % 3 == 0}
    found = loud(simulated(Job(n_dp=4, n_steps=9, seed=9, faults=Faults(loader_ns=loader))))
    assert {f.cause for f in found.values()} == {Cause.INPUT_PIPELINE}
    assert "input-stall" in found


def test_s26_a_delay_in_one_ranks_backward_is_that_ranks_compute(simulated):
    # Wall times are equal: the late rank computes longer before the bucket, its collectives are
    # shorter by as much.
    result = simulated(Job(n_dp=2, seed=10, faults=Faults(compute_factor={1: 1.3})))
    found = loud(result)["straggler-rank"]
    assert (found.ranks, found.cause) == ((1,), Cause.SLOW_DEVICE)
    steps = {part.rank: part.dur_ns for part in result.breakdown if part.is_averaged}
    assert max(steps.values()) - min(steps.values()) < 0.01 * result.run.step_ns


def test_s31_a_stage_whose_backward_is_slow_is_not_hidden_by_the_gradient_sync(simulated):
    faults = Faults(compute_factor={5: 1.6})
    result = simulated(Job(n_dp=2, n_pp=4, n_micro_batches=8, seed=11, faults=faults))
    found = loud(result)["straggler-rank"]
    assert (found.ranks, found.cause) == ((5,), Cause.SLOW_DEVICE)


def test_s33_a_fast_collective_beside_slow_products_is_the_symptom(simulated):
    # Products on one node take longer; its reduce-scatter looks faster, since the others wait.
    result = simulated(
        Job(n_dp=8, seed=12, faults=Faults(compute_factor=dict.fromkeys((4, 5, 6, 7), 1.25)))
    )
    found = loud(result)["straggler-rank"]
    assert (found.ranks, found.cause) == ((4, 5, 6, 7), Cause.SLOW_DEVICE)
    assert not {f.cause for f in loud(result).values()} & {Cause.SLOW_LINK, Cause.SLOW_GROUP}


def test_s8_all_reduce_is_slow_in_certain_groups_whose_members_arrive_together(simulated):
    # nccl#820: the link that some groups share is slow; nobody is late
    slow = {"dp2.0": 3.0, "dp3.0": 3.0}
    job = Job(n_dp=2, n_tp=8, n_layers=4, gradient_ns=6_000_000, faults=Faults(group_factor=slow))
    found = [f for f in simulated(job).findings if f.id == "slow-group"]
    assert sorted(f.groups for f in found) == [
        ("dp2.0 (2 ranks: 2, 10)",),
        ("dp3.0 (2 ranks: 3, 11)",),
    ]
    assert {f.cause for f in found} == {Cause.SLOW_GROUP}
    assert [f.measured.value for f in found] == [pytest.approx(3.0, rel=0.01)] * 2


def test_s8_no_rank_is_called_a_straggler(simulated):
    job = Job(n_dp=2, n_tp=8, n_layers=4, gradient_ns=6_000_000)
    slow = replace(job, faults=Faults(group_factor={"dp2.0": 3.0}))
    assert set(loud(simulated(slow))) <= {"slow-group", "exposed-communication"}


@pytest.fixture(scope="module")
def without_gpu_direct(tmp_path_factory):
    """The result of a job that gets 3 GB/s between nodes, its log and nccl-tests beside it."""
    folder = tmp_path_factory.mktemp("s9")
    scenarios()["no-gpu-direct"].build(folder, 1, 1.0)
    return tracekit.analyze(folder, engine="local:1")


def test_s9_a_slow_network_is_gpu_direct_that_is_off_or_access_control(without_gpu_direct):
    found = loud(without_gpu_direct)["low-bus-bandwidth"]
    assert found.cause is Cause.TOPOLOGY_SETTING
    assert found.measured.value == pytest.approx(3 / 20, rel=0.01)
    assert "no GPUDirect RDMA" in found.why
    assert "(ACS)" in found.recommendation.text
    assert found.recommendation.commands[0].endswith("modprobe nvidia_peermem")


def test_s9_is_no_problem_of_overlap(without_gpu_direct):
    assert without_gpu_direct.headline[0].startswith("Group dp0.0")
    assert "overlap" not in " ".join(without_gpu_direct.headline)


def test_s30_one_expert_group_is_slow_without_waiting(simulated):
    # ARGUS, case 2: steady step time, one group of experts on two nodes with a slow bus
    job = Job(n_dp=8, n_ep=2, exchange_ns=400_000, faults=Faults(group_factor={"ep2.0.0": 2.5}))
    found = loud(simulated(job))["slow-group"]
    assert (found.groups, found.ranks) == (("ep2.0.0 (2 ranks: 4–5)",), (4, 5))
    assert found.confidence.level is Level.MEDIUM


def test_s17_no_overlap_where_communication_and_compute_share_a_queue(simulated):
    # OLMo#386: no overlap on one platform; found without the run on the other
    found = loud(simulated(Job(gradient_ns=8_000_000, faults=Faults(is_awaited=True))))
    assert found["serialized-communication"].cause is Cause.SERIALIZED_STREAMS
    assert set(found) == {"serialized-communication"}


def test_s13_a_backward_pass_that_two_nodes_make_four_times_as_long(simulated):
    # nccl#689: 57 ms on one node, 237 ms on two; a spinning collective is no utilization
    job = Job(n_layers=8, backward_ns=7_000_000, gradient_ns=230_000_000, n_steps=4)
    result = simulated(job)
    found = loud(result)
    assert set(found) == {"exposed-communication"}
    rows = [row for row in result.breakdown if row.step == 11]
    # of 230 ms of reductions, which begin after two layers, some 42 ms have compute to hide behind
    assert rows[0].exposed_communication_ns == pytest.approx(180e6, rel=0.1)
    idle = next(f for f in result.findings if f.id == "idle-gpu")
    assert idle.status is not Status.FOUND or idle.severity is Severity.INFO


@pytest.fixture
def sharded_traces(tmp_path):
    """Traces of a job whose gather and scatter outlast the compute; without launches, if asked."""

    def made(*, has_launches=True):
        folder = tmp_path / f"sharded-{has_launches}"
        folder.mkdir()
        recorded(Job(gradient_ns=25_000_000), folder)
        for path in folder.iterdir():
            trace = json.loads(path.read_text())
            for event in trace["traceEvents"]:
                arguments = event.get("args", {})
                if arguments.get("Collective name") == "allreduce":
                    is_gather = arguments["Seq"] % 2
                    name = "_allgather_base" if is_gather else "_reduce_scatter_base"
                    event["name"] = "ncclDevKernel_" + (
                        "AllGather" if is_gather else "ReduceScatter"
                    )
                    arguments["Collective name"] = name
                    arguments["Process Group Description"] = "fsdp"
            if not has_launches:
                trace["traceEvents"] = [
                    event for event in trace["traceEvents"] if event.get("cat") != "cuda_runtime"
                ]
            path.write_text(json.dumps(trace))
        return folder

    return made


def test_s14_no_overlap_is_measured_without_links_and_their_absence_is_said(sharded_traces):
    # pytorch#106177: overlap on one node, none on sixteen, and arrows are missing
    result = tracekit.analyze(sharded_traces(has_launches=False), engine="local:1")
    operations = {each.operation for each in result.traffic.operations}
    assert operations == {"all_gather", "reduce_scatter"}
    assert all(each.exposed_transfer_ns > 0 for each in result.traffic.operations)
    assert "exposed-communication" in {f.id for f in result.findings if f.status is Status.FOUND}
    assert "device events without a launch" in {check.check for check in result.quality}


def test_s15_gathers_that_take_half_of_the_gpu_time_are_wire_bound(sharded_traces):
    # pytorch#102434: full sharding over several nodes
    found = loud(tracekit.analyze(sharded_traces(), engine="local:1"))
    assert set(found) == {"exposed-communication"}  # nobody is late
    advice = found["exposed-communication"].recommendation
    assert "hybrid shard" in advice.text
    assert "bus bandwidth" in advice.text


def test_s18_no_kernel_is_slower_and_more_communication_shows(simulated, tmp_path):
    # torchtitan#929: the new commit takes longer by what its communication shows
    old = tmp_path / "old"
    old.mkdir()
    recorded(Job(), old)
    before = tracekit.analyze(old, engine="local:1")
    for path in old.iterdir():
        path.unlink()
    old.rmdir()
    after = simulated(Job(gradient_ns=25_000_000))
    exposed = [
        next(f for f in result.findings if f.id == "exposed-communication").measured.value
        * result.run.step_ns
        for result in (before, after)
    ]
    grown_ns = after.run.step_ns - before.run.step_ns
    assert exposed[1] - exposed[0] == pytest.approx(grown_ns, rel=0.01)
    assert set(loud(after)) == {"exposed-communication"}


def test_s29_kernels_that_only_a_name_tells_are_recognised(simulated):
    # HTA#360: only ncclDevKernel_* names, nothing else is recorded of them
    result = simulated(Job(gradient_ns=25_000_000), has_metadata=False)
    (row,) = result.traffic.operations
    assert (row.operation, row.n_calls) == ("all_reduce", 24)  # 4 a step, 6 steps
    assert row.busbw_gb_s is None  # no bytes are known
