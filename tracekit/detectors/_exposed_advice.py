"""What would hide exposed communication, by the parallel dimension and operation that shows."""

from __future__ import annotations

from tracekit.findings import Change, Recommendation

_SHARDED = Recommendation(
    "Gather and scatter of sharded parameters show: prefetch the next layer's parameters, shard "
    "inside nodes and replicate across them (hybrid shard), and compare the bus bandwidth with "
    "nccl-tests before anything is bought.",
    Change.SETTING,
    (
        "fully_shard(model, mesh=init_device_mesh('cuda', (n_nodes, n_gpus_per_node)))",
        "module.set_modules_to_forward_prefetch([...])",
        "all_gather_perf -b 1M -e 1G -f 2",
    ),
)
_REDUCED = Recommendation(
    "Reductions of gradients show: start the first one earlier (smaller first bucket), reduce in "
    "bf16, or accumulate gradients over more micro-batches before one reduction.",
    Change.SETTING,
    (
        "DistributedDataParallel(..., bucket_cap_mb=50, gradient_as_bucket_view=True)",
        "model.register_comm_hook(None, default_hooks.bf16_compress_hook)",
    ),
)
_TENSOR = Recommendation(
    "Tensor parallel collectives stand between two products and show: overlap them in chunks, and "
    "keep the group inside one node.",
    Change.SETTING,
    ("Megatron-LM: --sequence-parallel --tp-comm-overlap",),
)
_PIPELINE = Recommendation(
    "Messages between stages show: let them run beside the next micro-batch.",
    Change.SETTING,
    ("Megatron-LM: --overlap-p2p-communication-warmup-flush",),
)
_EXPERT = Recommendation(
    "Exchanges of tokens show: overlap them with shared experts or with another micro-batch, and "
    "keep experts of a token inside few nodes.",
    Change.CODE,
    ("Megatron-LM: --moe-shared-expert-overlap",),
)


def hiding(dimension: str | None, operation: str | None) -> Recommendation | None:
    """What would hide this operation of a group that serves this dimension; None: not known."""
    if dimension == "data" and operation in {"all_gather", "reduce_scatter"}:
        return _SHARDED
    if dimension == "data":
        return _REDUCED
    return {"tensor": _TENSOR, "pipeline": _PIPELINE, "expert": _EXPERT}.get(dimension or "")
