"""One layer of a model: the operators that a thread runs and the kernels they launch."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING

from tracekit.sample_traces.simulator.operations import (
    Begin,
    Copy,
    End,
    Graph,
    HostWork,
    Kernel,
    Operation,
    Synchronize,
)

if TYPE_CHECKING:
    from tracekit.sample_traces.simulator.job import Job

_PARTS = (
    ("aten::_flash_attention", "flash_{}_kernel", 0.25),
    ("aten::mm", "nvjet_gemm_{}_256x128", 0.40),
    ("aten::add", "void vectorized_elementwise_kernel<4, {}>", 0.05),
    ("aten::mm", "nvjet_gemm_{}_128x256", 0.30),
)
"""Operator, kernel and share of the layer: attention, two matrix products, what lies between."""


def layer(
    job: Job, rank: int, random: Random, phase: str, dur_ns: float, attention_factor: float = 1.0
) -> list[Operation]:
    """Operations of one layer, forward or backward, that runs for `dur_ns` on a healthy device.

    Its attention takes `attention_factor` times as long.
    """
    factor = job.faults.compute_factor.get(rank, 1.0)
    n_more = job.faults.extra_kernels.get(rank, 0)
    launched: list[tuple[str, Kernel]] = []
    for operator, name, share in (*_pieces(job, phase), *(_PARTS[1],) * n_more):
        longer = factor * (attention_factor if name == _PARTS[0][1] else 1.0)
        kernel = Kernel(
            name=name.format(phase),
            dur_ns=job.noise.kernel_ns(random, dur_ns * share * longer),
            call_ns=job.host_call_ns(rank, random),
        )
        launched.append((operator, kernel))
    if job.is_graphed:
        return [Graph(kernels=tuple(kernel for _, kernel in launched))]
    operator_ns = job.operator_ns + job.faults.operator_ns
    operations: list[Operation] = []
    if phase == "forward":
        operations += _metadata() * job.faults.n_metadata_syncs
    for operator, kernel in launched:
        operations.append(Begin(name=operator))
        if operator_ns:
            operations.append(HostWork(dur_ns=job.noise.call_ns(random, operator_ns)))
        operations += [kernel, End()]
    return operations


def encoder(job: Job, rank: int, random: Random, phase: str, dur_ns: float) -> list[Operation]:
    """Operations of an encoder of images; a trace shows its forward pass as a span of its own."""
    operations: list[Operation] = []
    for operator, name, share in _PARTS:
        kernel = Kernel(
            name=name.format(f"encoder_{phase}"),
            dur_ns=job.noise.kernel_ns(random, dur_ns * share),
            call_ns=job.host_call_ns(rank, random),
        )
        operations += [Begin(name=operator), kernel, End()]
    if phase == "backward":
        return operations
    return [Begin(name="vision_encoder", category="annotation"), *operations, End()]


@cache
def _weights(seed: str, n_pieces: int, spread: float) -> tuple[float, ...]:
    """Shares of the pieces of one operator, log-normal; they add up to 1."""
    drawn = Random(seed)  # noqa: S311 - a simulation
    weights = [drawn.lognormvariate(0.0, spread) for _ in range(n_pieces)]
    return tuple(weight / sum(weights) for weight in weights)


def _pieces(job: Job, phase: str) -> list[tuple[str, str, float]]:
    """Operator, kernel and share of a layer for each of its kernels, in the order of the layer."""
    weights = [
        _weights(f"{job.seed} {phase} {part}", job.n_pieces, job.kernel_spread)
        for part in range(len(_PARTS))
    ]
    return [
        (operator, name, share * weights[part][piece])
        for piece in range(job.n_pieces)
        for part, (operator, name, share) in enumerate(_PARTS)
    ]


def _metadata() -> list[Operation]:
    """The host reads a few sizes from the device and allocates by them before it launches."""
    return [
        Begin(name="aten::item"),
        Copy(kind="DtoH", size_bytes=8, dur_ns=1_500, is_pinned=False),
        Synchronize(stream=7),
        End(),
        Begin(name="aten::empty"),
        HostWork(dur_ns=10_000),
        HostWork(dur_ns=30_000, name="cudaMalloc", category="runtime"),
        End(),
    ]
