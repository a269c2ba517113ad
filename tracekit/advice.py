"""What to do about each cause, where a detector gives no advice of its own."""

from __future__ import annotations

from tracekit.findings import Cause, Change, Recommendation

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
