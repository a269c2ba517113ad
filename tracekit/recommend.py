"""From findings to advice: what to do for each cause, how savings combine, three sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.findings import (
    Cause,
    Change,
    Finding,
    Range,
    Recommendation,
    Severity,
    Status,
    ranked,
    with_severity,
    worth,
)
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.detectors import Detector

ADVICE: dict[Cause, Recommendation] = {
    Cause.SLOW_DEVICE: Recommendation(
        "Compare clocks, power and temperature of this device with its peers'; if they differ, "
        "drain the node and have it looked at.",
        Change.HARDWARE,
        (
            (
                "nvidia-smi --query-gpu=index,clocks.sm,clocks.max.sm,temperature.gpu,power.draw,"
                "clocks_event_reasons.active --format=csv"
            ),
            "dcgmi diag -r 2",
        ),
    ),
    Cause.DATA_IMBALANCE: Recommendation(
        "Give each rank the same cost, not the same count: sort or pack samples by length, and "
        "spread experts, tables or layers by measured time.",
        Change.CODE,
    ),
    Cause.THROTTLED_DEVICE: Recommendation(
        "Find what holds this device back: heat (airflow, dust, its place in the rack), a power "
        "limit lower than its peers', a clock that was set.",
        Change.HARDWARE,
        (
            (
                "nvidia-smi --query-gpu=index,clocks.sm,clocks.applications.graphics,power.limit,"
                "temperature.gpu,clocks_event_reasons.active --format=csv"
            ),
            "nvidia-smi -q -d PERFORMANCE,POWER,CLOCK",
        ),
    ),
    Cause.SEQUENCE_LENGTH_IMBALANCE: Recommendation(
        "Balance the sum of squared lengths over ranks, not samples or tokens: pack by cost within "
        "each global batch, and split the longest sequences (context parallelism).",
        Change.CHANGES_TRAINING,
        ("c.samples(lengths=[...])  # tells tracekit, so that the next report is sure",),
    ),
    Cause.EXPERT_IMBALANCE: Recommendation(
        "Balance the experts: an auxiliary loss or a routing bias, a capacity limit, hot experts "
        "replicated or placed with cold ones.",
        Change.CHANGES_TRAINING,
    ),
    Cause.MODALITY_IMBALANCE: Recommendation(
        "Spread the encoder's work over all ranks: reorder samples within the global batch so that "
        "each rank gets the same cost of every modality, or run the encoder on ranks of its own.",
        Change.CODE,
    ),
    Cause.STAGE_IMBALANCE: Recommendation(
        "Move layers away from the longest stage; give the first and last stages fewer, for their "
        "embedding and head.",
        Change.SETTING,
        ("Megatron-LM: --decoder-last-pipeline-num-layers N",),
    ),
    Cause.MICROBATCH_IMBALANCE: Recommendation(
        "Make micro-batches equally long: sort samples of the global batch into micro-batches of "
        "the same cost, the longest first.",
        Change.CODE,
    ),
    Cause.HETEROGENEOUS_DEVICE: Recommendation(
        "Give each rank a share of the batch in proportion to its speed (the table names it), or "
        "put GPUs of one model into one job.",
        Change.CODE,
    ),
    Cause.HOST_PAUSE: Recommendation(
        "Garbage collection of Python is likely. Confirm it: record with tracekit.collect, which "
        "marks collections, or watch gc.callbacks; then collect on all ranks in the same step.",
        Change.CODE,
        ("gc.disable(); gc.collect(1)  # every n steps, on every rank", "py-spy dump --pid PID"),
    ),
    Cause.INPUT_PIPELINE: Recommendation(
        "Load ahead of the step: more workers, prefetching, pinned memory; move decoding off the "
        "training process.",
        Change.SETTING,
        (
            (
                "DataLoader(..., num_workers=8, prefetch_factor=4, pin_memory=True, "
                "persistent_workers=True)"
            ),
        ),
    ),
    Cause.HOST_SYNC: Recommendation(
        "Remove calls that wait for the device inside the step: .item(), .cpu(), printing a loss, "
        "copies from pageable memory; log every n steps instead.",
        Change.CODE,
        ("torch.cuda.set_sync_debug_mode('warn')",),
    ),
    Cause.ALLOCATOR: Recommendation(
        "Stop the caching allocator from going back to the driver: use expandable segments and "
        "leave some memory free.",
        Change.SETTING,
        ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",),
    ),
    Cause.COMPILATION: Recommendation(
        "Keep compilation out of the measured steps: warm up with every shape, mark dynamic "
        "dimensions, keep the compile cache on disk.",
        Change.SETTING,
        ("export TORCHINDUCTOR_FX_GRAPH_CACHE=1",),
    ),
    Cause.CHECKPOINT: Recommendation(
        "Write checkpoints in the background (torch.distributed.checkpoint.async_save) and from "
        "all ranks.",
        Change.CODE,
    ),
    Cause.CPU_OPTIMIZER: Recommendation(
        "Keep the optimizer on the device, or overlap its CPU step with the backward pass.",
        Change.SETTING,
    ),
    Cause.GARBAGE_COLLECTION: Recommendation(
        "Collect garbage on all ranks in the same step: switch the automatic collector off and "
        "call it on a schedule.",
        Change.CODE,
        ("gc.disable(); gc.collect(1)  # every n steps, on every rank",),
    ),
    Cause.LAUNCH_OVERHEAD: Recommendation(
        "Launch fewer, larger kernels: torch.compile, CUDA graphs, fused optimizers, larger "
        "batches.",
        Change.CODE,
        ("torch.compile(model, mode='reduce-overhead')",),
    ),
    Cause.HOST_OTHER: Recommendation(
        "The host did something that no operator records (Python, I/O, a sleep, another process). "
        "Watch that rank's process with a sampling profiler while the job runs.",
        Change.CODE,
        ("py-spy dump --pid PID", "py-spy record --pid PID --duration 30 --output stacks.svg"),
    ),
    Cause.SLOW_HOST: Recommendation(
        "This rank's host launches more slowly than its peers': compare CPU clocks, NUMA binding, "
        "and other processes on its cores.",
        Change.HARDWARE,
        ("numactl --show", "cpupower frequency-info", "pidstat -u -t 1 5"),
    ),
    Cause.COPY_IN_OUT: Recommendation(
        "Copy from pinned memory, asynchronously and ahead of the step; keep what is used again on "
        "the device.",
        Change.CODE,
        ("tensor.pin_memory().to(device, non_blocking=True)",),
    ),
    Cause.EXPOSED_COMMUNICATION: Recommendation(
        "Start communication earlier and hide it behind compute: smaller first buckets, prefetch "
        "of the next layer's parameters, gradient accumulation without synchronising.",
        Change.SETTING,
        (
            "DistributedDataParallel(..., bucket_cap_mb=50, gradient_as_bucket_view=True)",
            "fully_shard: module.set_modules_to_forward_prefetch([...])",
        ),
    ),
    Cause.SMALL_MESSAGES: Recommendation(
        "Merge small collectives: gradients in buckets, several tensors of one group in one "
        "coalesced call.",
        Change.SETTING,
        (
            "DistributedDataParallel(..., bucket_cap_mb=25)",
            "fully_shard(block)  # of whole blocks, not of each layer",
        ),
    ),
    Cause.NETWORK_TAIL: Recommendation(
        "Look for congestion and faults on the way of these groups: counters of retransmissions, "
        "pauses and link errors before and after a slow call, other jobs on the same switches, "
        "routing that puts several flows on one link.",
        Change.HARDWARE,
        (
            "ethtool -S DEVICE | grep -i 'discard\\|retrans\\|pause'",
            "perfquery -x",
            "export NCCL_IB_QPS_PER_CONNECTION=4  # spreads flows over links",
        ),
    ),
    Cause.SLOW_GROUP: Recommendation(
        "The members share a slow link: measure nccl-tests on the nodes of this group and on those "
        "of a peer, look for an adapter that several GPUs share, and for errors of its port.",
        Change.HARDWARE,
        (
            "mpirun -H NODE_A,NODE_B all_reduce_perf -b 1M -e 1G -f 2",
            "nvidia-smi topo -m",
            "perfquery -x  # symbol errors, link downed",
        ),
    ),
    Cause.SLOW_LINK: Recommendation(
        "Measure this link and one of its peers; look at what lies between the two ranks, and at "
        "errors and width of the link.",
        Change.HARDWARE,
        (
            "mpirun -H NODE_A,NODE_B sendrecv_perf -b 1M -e 1G -f 2",
            "nvidia-smi topo -m",
            "nvidia-smi nvlink --errorcounters",
        ),
    ),
    Cause.MISSING_CALL: Recommendation(
        "Look for a branch or a loop that only some ranks take: collectives must be called by all "
        "members, equally often and in the same order. torch checks every call when told to.",
        Change.CODE,
        ("export TORCH_DISTRIBUTED_DEBUG=DETAIL",),
    ),
    Cause.PROFILER_OVERHEAD: Recommendation(
        "Record again with fewer options, and compare with a step time without the profiler.",
        Change.SETTING,
    ),
    Cause.UNKNOWN: Recommendation(
        "Record this rank again with host operators and CUDA synchronisation events, so that the "
        "cause can be named.",
        Change.SETTING,
        (
            (
                "torch.profiler.profile(activities=[CPU, CUDA], experimental_config="
                "_ExperimentalConfig(enable_cuda_sync_events=True))"
            ),
        ),
    ),
}


OF_HANGS = {Cause.MISSING_CALL, Cause.PEER_FAILURE, Cause.MISMATCHED_CALL}
"""A job that stands still for one of these has no step to save from."""


def completed(
    findings: tuple[Finding, ...], detectors: Mapping[str, Detector]
) -> tuple[Finding, ...]:
    """Bound savings by their parent's, leave each to one finding, give advice, and rank."""
    by_id: dict[str, list[Finding]] = {}
    for finding in findings:
        by_id.setdefault(finding.id, []).append(finding)
    parents = {name: detector.bounded_by for name, detector in detectors.items()}
    bounded = []
    for finding in findings:
        parts = [other for other in findings if parents.get(other.id) == finding.id]
        own = _bounded(finding, by_id.get(parents.get(finding.id) or "", []))
        bounded.append(_named_by_parts(own, parts))
    return ranked(tuple(with_severity(_advised(finding)) for finding in bounded))


def headline(findings: tuple[Finding, ...], n_checked: int, device: str = "GPU") -> tuple[str, ...]:
    """Three sentences: cause, saving, cure; or that nothing found is worth fixing.

    Args:
        findings: Completed ones.
        n_checked: How many detectors were asked.
        device: What a second of the saving is a second of: a GPU, or a rank without one.
    """
    loud = [f for f in findings if f.status is Status.FOUND and f.severity is not Severity.INFO]
    if not loud:
        return _healthy(findings, n_checked)
    top = max(loud, key=worth)
    return (
        f"{top.title}: {_cause_text(top)}.",
        _saving_text(top, device),
        top.recommendation.text if top.recommendation else "See the evidence below.",
    )


def _healthy(findings: tuple[Finding, ...], n_checked: int) -> tuple[str, ...]:
    ran = {f.id for f in findings if f.status in (Status.FOUND, Status.CLEAR)}
    n_small = sum(finding.status is Status.FOUND for finding in findings)
    notes = {0: "", 1: ", 1 smaller note stands below"}.get(
        n_small, f", {n_small} smaller notes stand below"
    )
    # what only a log or a dump would tell is not held against a run of traces
    n_further = len({f.id for f in findings if f.is_of_further_source} - ran)
    is_thin = 2 * len(ran) <= n_checked - n_further
    return (
        "Too little could be checked." if is_thin else "Nothing found that is worth fixing.",
        f"{len(ran)} of {n_checked} checks ran{notes}.",
        "What was checked and what would need more data is listed below.",
    )


def _cause_text(finding: Finding) -> str:
    """What the finding rests on, where it says so, else the cause by name."""
    if finding.why:
        return finding.why
    if finding.cause in (None, Cause.UNKNOWN):
        return "the traces do not show the cause"
    return finding.cause.value.replace("-", " ")


def _saving_text(finding: Finding, device: str) -> str:
    saving = finding.saving
    if saving is None and finding.cause in OF_HANGS:
        return "No further step ends before this is mended."
    if saving is None:
        return "What fixing it buys cannot be said from these traces."
    low, high = saving.per_step_ns.low, saving.per_step_ns.high
    is_one = low >= 0.95 * high
    amount = text(high, Unit.NS) if is_one else f"{text(low, Unit.NS)} to {text(high, Unit.NS)}"
    share, hours = text(saving.share_high, Unit.SHARE), saving.gpu_hours_per_day.high
    return (
        f"Fixing it saves {'up to ' if is_one else ''}{amount} of each step, up to {share} of the "
        f"{device} time ({hours:,.1f} {device}-hours a day)."
    )


def _bounded(finding: Finding, parents: list[Finding]) -> Finding:
    """A saving is at most that of the finding it is part of."""
    bounds = [parent.saving for parent in parents if parent.saving is not None]
    if finding.saving is None or not bounds:
        return finding
    bound = max(bounds, key=lambda each: each.per_step_ns.high)
    own = finding.saving
    if own.per_step_ns.high <= bound.per_step_ns.high:
        return finding
    low = min(own.per_step_ns.low, bound.per_step_ns.high)
    ratio = bound.per_step_ns.high / own.per_step_ns.high
    replayed_ns = own.replayed_ns
    if replayed_ns is not None:
        replayed_ns = min(replayed_ns, bound.per_step_ns.high)
    return replace(
        finding,
        saving=replace(
            own,
            per_step_ns=Range(low, bound.per_step_ns.high),
            replayed_ns=replayed_ns,
            share=min(own.share, bound.share_high),
            share_high=bound.share_high,
            gpu_hours_per_day=Range(
                min(own.gpu_hours_per_day.low, own.gpu_hours_per_day.high * ratio),
                own.gpu_hours_per_day.high * ratio,
            ),
        ),
    )


def _named_by_parts(finding: Finding, parts: list[Finding]) -> Finding:
    """The saving is left to a part that has the same cause and most of it: it says more."""
    named = [part for part in parts if part.status is Status.FOUND and part.cause is finding.cause]
    if finding.status is not Status.FOUND or not named or not _is_most(named[0], finding):
        return finding
    return replace(finding, saving=None, why=f"most of it is named by {named[0].id}")


def _is_most(part: Finding, whole: Finding) -> bool:
    """Whether a part holds at least half of what the whole saves; so does one that claims none."""
    if part.saving is None or whole.saving is None:
        return True
    return 2 * part.saving.per_step_ns.high >= whole.saving.per_step_ns.high


def _advised(finding: Finding) -> Finding:
    if finding.status is not Status.FOUND or finding.recommendation is not None:
        return finding
    advice = ADVICE.get(finding.cause or Cause.UNKNOWN, ADVICE[Cause.UNKNOWN])
    return replace(finding, recommendation=advice)
