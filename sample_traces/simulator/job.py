"""What a training job is: its layout, schedule, sizes and durations, its noise, and its faults.

Every knob is a parameter, and the same job without a fault is the same job without that parameter.
Nothing here knows a detector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tracekit.sample_traces.simulator.noise import Noise
from tracekit.sample_traces.simulator.operations import Group

if TYPE_CHECKING:
    import random

Schedule = Literal["gpipe", "1f1b", "interleaved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong, by rank (and step); nothing does by default.

    `host_work` is an operator by name, and for how many ns it keeps the training thread busy.
    Reductions run in the stream of the compute (`is_serialized`), or it waits for each
    (`is_awaited`).
    With `n_parts` each layer reduces so many tensors by themselves, each two thirds of the one
    before, and no bucket. With `is_synced_each` gradients are reduced in every micro-batch, not in
    the last one alone. Transfers of a group take `group_factor`, by its name, times as long, those
    of messages between two ranks, the lower first, `link_factor` times, and every `tail_every`-th
    one of data parallel groups `tail_factor` times. A copy runs beside every `copy_every`-th
    reduction of gradients, which takes `contention_factor` times as long. For `bucket_copy_ns`
    tensors are copied into the bucket before each reduction, and again out of it. In each step all
    reduce a count that nobody waits for, but `absent`, which makes up for it after its last step.
    `attention_factor` and `encoder_factor` are those of a rank in a step, `micro_batch_factor` that
    of a micro-batch on all ranks. In layer l the experts of the l-th rank of their group get
    `hot_expert_factor` times the tokens, and the others less, so that all get as many as before.
    A rank's part in exchanges of tokens is `exchange_factor` times as large, and takes as long.
    """

    compute_factor: dict[int, float] = field(default_factory=dict)
    extra_kernels: dict[int, int] = field(default_factory=dict)
    expert_factor: dict[int, float] = field(default_factory=dict)
    hot_expert_factor: float = 1.0
    exchange_factor: dict[int, float] = field(default_factory=dict)
    attention_factor: dict[tuple[int, int], float] = field(default_factory=dict)
    encoder_factor: dict[tuple[int, int], float] = field(default_factory=dict)
    micro_batch_factor: dict[int, float] = field(default_factory=dict)
    call_factor: dict[int, float] = field(default_factory=dict)
    loader_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    pause_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    collection_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    host_work: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    allocation_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    is_freeing: bool = False
    is_serialized: bool = False
    is_awaited: bool = False
    is_synced_each: bool = False
    n_parts: int = 0
    group_factor: dict[str, float] = field(default_factory=dict)
    link_factor: dict[tuple[int, int], float] = field(default_factory=dict)
    tail_every: int = 0
    tail_factor: float = 1.0
    copy_every: int = 0
    contention_factor: float = 1.0
    bucket_copy_ns: int = 0
    absent: int | None = None
    n_metadata_syncs: int = 0
    operator_ns: int = 0
    load_ns: int = 0
    startup_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A data loader with worker processes; `pin_ns` is the pin-memory thread's time for a batch.

    Each worker makes one batch at a time, in `load_ns`, and is at most `n_prefetched` ahead. Epochs
    of `steps_per_epoch` steps (0: one that never ends) each start their workers anew, in
    `startup_ns`.
    """

    n_workers: int = 4
    load_ns: int = 20_000_000
    n_prefetched: int = 2
    pin_ns: int = 500_000
    steps_per_epoch: int = 0
    startup_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job. Durations are those of one layer and micro-batch on a healthy device.

    Each layer runs `n_pieces` times four kernels, whose nominal durations have a spread of
    `kernel_spread` around those of their operator (of ln; the same on all ranks); with the shares
    of the operators that makes 1.35, as on H100 and A100. With `n_ep` expert ranks a layer sends
    tokens to experts and back. With `n_cp` context ranks a layer has so many chunks of attention of
    `chunk_ns`, while each the keys and values of the next go around their ring, for `ring_ns` (0:
    each rank has them all). An encoder of another modality runs before the first layer, for
    `encoder_ns`, forward and twice that backward. `loader` null reads in the training thread, for
    `loader_ns`. Each reduction of gradients takes `latency_ns` besides its bytes. A graph launches
    a whole layer by one call.
    """

    n_dp: int = 4
    n_tp: int = 1
    n_pp: int = 1
    n_ep: int = 1
    n_cp: int = 1
    schedule: Schedule = "1f1b"
    n_chunks: int = 1
    n_layers: int = 8
    n_micro_batches: int = 1
    n_steps: int = 6
    first_step: int = 10
    forward_ns: int = 1_000_000
    backward_ns: int = 2_000_000
    n_pieces: int = 1
    kernel_spread: float = 1.0
    encoder_ns: int = 0
    expert_ns: int = 400_000
    exchange_ns: int = 120_000
    optimizer_ns: int = 600_000
    loader: Loader | None = None
    loader_ns: int = 300_000
    call_ns: int = 5_000
    operator_ns: int = 0
    n_buckets: int = 4
    gradient_bytes: int = 64 << 20
    gradient_ns: int = 1_500_000
    latency_ns: int = 0
    tensor_ns: int = 60_000
    activation_bytes: int = 16 << 20
    activation_ns: int = 150_000
    ring_ns: int = 100_000
    chunk_ns: int = 200_000
    is_synced: bool = True
    is_graphed: bool = False
    noise: Noise = field(default_factory=Noise)
    seed: int = 0
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        """Refuse a layout that does not divide."""
        if self.n_dp % self.n_ep:
            raise ValueError(f"{self.n_ep} expert ranks do not divide {self.n_dp} data ranks")
        if self.n_dp % self.n_cp:
            raise ValueError(f"{self.n_cp} context ranks do not divide {self.n_dp} data ranks")
        if self.n_layers % (self.n_pp * self.n_chunks):
            raise ValueError(f"{self.n_layers} layers do not divide over stages and chunks")
        if (self.schedule == "interleaved") != (self.n_chunks > 1):
            raise ValueError("several chunks a stage are what the interleaved schedule is for")
        if self.schedule == "interleaved" and self.n_micro_batches % self.n_pp:
            raise ValueError("interleaved: micro-batches come in multiples of the stages")

    @property
    def steps(self) -> range:
        """Numbers of its steps."""
        return range(self.first_step, self.first_step + self.n_steps)

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.n_dp * self.n_tp * self.n_pp

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Data, tensor and pipeline coordinate of a rank: tensor fastest, pipeline slowest."""
        return rank // self.n_tp % self.n_dp, rank % self.n_tp, rank // (self.n_tp * self.n_dp)

    def rank(self, dp: int, tp: int, pp: int) -> int:
        """The rank at these coordinates."""
        return tp + self.n_tp * (dp + self.n_dp * pp)

    def host_call_ns(self, rank: int, random: random.Random) -> int:
        """How long a launch call takes a rank's host."""
        nominal_ns = self.call_ns * self.faults.call_factor.get(rank, 1.0)
        return self.noise.call_ns(random, nominal_ns)


def each_step(rank: int, dur_ns: float) -> dict[tuple[int, int], int]:
    """The same time for one rank in every step of a job of the usual length."""
    return {(rank, step): int(dur_ns) for step in Job().steps}


def groups(job: Job) -> tuple[Group, ...]:
    """The world and one communicator for each row of the grid, named as Megatron does.

    Experts are spread over `n_ep` neighbouring data-parallel ranks, sequences over `n_cp`.
    """
    dps, tps, pps = range(job.n_dp), range(job.n_tp), range(job.n_pp)
    found = [Group(name="0", purpose="default_pg", members=tuple(range(job.world_size)))]
    found += [
        _group(f"dp{tp}.{pp}", "DATA_PARALLEL_GROUP", [job.rank(dp, tp, pp) for dp in dps])
        for tp in tps
        for pp in pps
    ]
    found += [
        _group(f"tp{dp}.{pp}", "TENSOR_MODEL_PARALLEL", [job.rank(dp, tp, pp) for tp in tps])
        for dp in dps
        for pp in pps
    ]
    found += [
        _group(f"pp{dp}.{tp}", "PIPELINE_MODEL_PARALLEL", [job.rank(dp, tp, pp) for pp in pps])
        for dp in dps
        for tp in tps
    ]
    found += [
        _group(
            f"{name}{first // n}.{tp}.{pp}",
            purpose,
            [job.rank(dp, tp, pp) for dp in dps[first : first + n]],
        )
        for name, purpose, n in (
            ("ep", "EXPERT_MODEL_PARALLEL_GROUP", job.n_ep),
            ("cp", "CONTEXT_PARALLEL_GROUP", job.n_cp),
        )
        for first in range(0, job.n_dp, n)
        for tp in tps
        for pp in pps
    ]
    return tuple(group for group in found if len(group.members) > 1)


def _group(name: str, purpose: str, members: list[int]) -> Group:
    return Group(name=name, purpose=purpose, members=tuple(members))
