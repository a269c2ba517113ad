"""Programs of a training job: data, tensor and pipeline parallel ranks, step after step.

The job is healthy unless told otherwise: every knob of a fault is a parameter, and the same job
without the fault is the same call without that parameter. Nothing here knows a detector.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tracekit.sample_traces.simulator.operations import (
    Await,
    Begin,
    Collective,
    Copy,
    End,
    Group,
    HostWork,
    Kernel,
    Message,
    Operation,
    Program,
    Signal,
    StreamWait,
    Synchronize,
)

MAIN, AUTOGRAD = 1, 2
"""Thread numbers: the training thread launches forward and optimizer, the other one backward."""
COMPUTE, DATA_COMM, TENSOR_COMM, SEND, RECV = 7, 20, 24, 28, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong, by rank (and step); nothing does by default."""

    compute_factor: dict[int, float] = field(default_factory=dict)
    extra_kernels: dict[int, int] = field(default_factory=dict)
    call_factor: dict[int, float] = field(default_factory=dict)
    loader_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    pause_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    allocation_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    is_serialized: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job. Durations are those of one layer and micro-batch on a healthy device."""

    n_dp: int = 4
    n_tp: int = 1
    n_pp: int = 1
    n_layers: int = 8
    n_micro_batches: int = 1
    n_steps: int = 6
    first_step: int = 10
    forward_ns: int = 1_000_000
    backward_ns: int = 2_000_000
    optimizer_ns: int = 600_000
    loader_ns: int = 300_000
    call_ns: int = 5_000
    n_buckets: int = 4
    gradient_bytes: int = 64 << 20
    gradient_ns: int = 1_500_000
    tensor_ns: int = 60_000
    activation_bytes: int = 16 << 20
    activation_ns: int = 150_000
    is_synced: bool = True
    jitter_share: float = 0.01
    seed: int = 0
    faults: Faults = field(default_factory=Faults)

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


def each_step(rank: int, dur_ns: float) -> dict[tuple[int, int], int]:
    """The same time for one rank in every step of a job of the usual length."""
    return {(rank, step): int(dur_ns) for step in Job().steps}


def groups(job: Job) -> tuple[Group, ...]:
    """The world and one communicator for each row of the grid, named as Megatron does."""
    found = [Group(name="0", purpose="default_pg", members=tuple(range(job.world_size)))]
    for tp in range(job.n_tp):
        for pp in range(job.n_pp):
            members = tuple(job.rank(dp, tp, pp) for dp in range(job.n_dp))
            found.append(Group(name=f"dp{tp}.{pp}", purpose="DATA_PARALLEL_GROUP", members=members))
    for dp in range(job.n_dp):
        for pp in range(job.n_pp):
            members = tuple(job.rank(dp, tp, pp) for tp in range(job.n_tp))
            found.append(
                Group(name=f"tp{dp}.{pp}", purpose="TENSOR_MODEL_PARALLEL", members=members)
            )
        for tp in range(job.n_tp):
            members = tuple(job.rank(dp, tp, pp) for pp in range(job.n_pp))
            found.append(
                Group(name=f"pp{dp}.{tp}", purpose="PIPELINE_MODEL_PARALLEL", members=members)
            )
    return tuple(group for group in found if len(group.members) > 1)


def programs(job: Job) -> dict[int, Program]:
    """What every rank does."""
    return {rank: _Rank(job, rank).program() for rank in range(job.world_size)}


class _Rank:
    """Writes the program of one rank; the random numbers depend on seed and rank alone."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job = job
        self.rank = rank
        self.dp, self.tp, self.pp = job.coordinates(rank)
        self.random = random.Random(job.seed * 100_003 + rank)  # noqa: S311 - a simulation
        self.main: list[Operation] = []
        self.autograd: list[Operation] = []
        self.groups = {group.name: group for group in groups(job)}

    def program(self) -> Program:
        for step in self.job.steps:
            self._step(step)
        self.main.append(Synchronize())
        return {MAIN: self.main, AUTOGRAD: self.autograd}

    def _step(self, step: int) -> None:
        job, faults = self.job, self.job.faults
        self.main.append(Begin(name=f"ProfilerStep#{step}", category="annotation"))
        self._load(step)
        pause_ns = faults.pause_ns.get((self.rank, step), 0)
        if pause_ns:
            self.main.append(HostWork(dur_ns=pause_ns))
        allocation_ns = faults.allocation_ns.get((self.rank, step), 0)
        if allocation_ns:
            self.main.append(HostWork(dur_ns=allocation_ns, name="cudaMalloc", category="runtime"))
        for is_forward, micro_batch in _schedule(job, self.pp):
            if is_forward:
                self._forward()
            else:
                self._backward(step, micro_batch)
        self._optimize()
        if self.job.is_synced:  # the loss is printed
            self.main.append(Synchronize())
        self.main.append(End())

    def _load(self, step: int) -> None:
        """The batch comes from the loader and goes to the device; only the first stage reads."""
        if self.pp == 0:
            load_ns = self.job.loader_ns + self.job.faults.loader_ns.get((self.rank, step), 0)
            name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            self.main += [
                Begin(name=name, category="annotation"),
                HostWork(dur_ns=load_ns),
                End(),
                Copy(kind="HtoD", size_bytes=8 << 20, dur_ns=self._noisy(400_000)),
            ]

    def _forward(self) -> None:
        job = self.job
        if self.pp > 0:
            self._message(self.main, self.pp - 1, is_send=False)
        for _ in range(self._n_layers()):
            self.main.append(Begin(name="aten::linear"))
            self._compute(self.main, "forward", job.forward_ns)
            self.main.append(End())
            self._tensor_reduce(self.main)
        if self.pp + 1 < job.n_pp:
            self._message(self.main, self.pp + 1, is_send=True)

    def _backward(self, step: int, micro_batch: int) -> None:
        """Backward runs on the autograd thread while the training thread waits for it."""
        job = self.job
        token = f"{step}.{micro_batch}"
        self.main += [Signal(f"go {token}"), Await(f"done {token}")]
        self.autograd.append(Await(f"go {token}"))
        if self.pp + 1 < job.n_pp:
            self._message(self.autograd, self.pp + 1, is_send=False)
        n_layers = self._n_layers()
        per_bucket = max(1, n_layers // job.n_buckets)
        for layer in reversed(range(n_layers)):
            self.autograd.append(Begin(name="autograd::engine::evaluate_function: LinearBackward"))
            self._compute(self.autograd, "backward", job.backward_ns)
            self.autograd.append(End())
            self._tensor_reduce(self.autograd)
            if micro_batch == job.n_micro_batches - 1 and layer % per_bucket == 0:
                self._gradient_reduce()
        if self.pp > 0:
            self._message(self.autograd, self.pp - 1, is_send=True)
        self.autograd.append(Signal(f"done {token}"))

    def _compute(self, thread: list[Operation], phase: str, dur_ns: int) -> None:
        """One layer: attention, two matrix products, and what lies between them."""
        factor = self.job.faults.compute_factor.get(self.rank, 1.0)
        more = ((f"nvjet_gemm_{phase}_256x128", 0.40),) * self.job.faults.extra_kernels.get(
            self.rank, 0
        )
        for name, share in (
            (f"flash_{phase}_kernel", 0.25),
            (f"nvjet_gemm_{phase}_256x128", 0.40),
            (f"void vectorized_elementwise_kernel<4, {phase}>", 0.05),
            (f"nvjet_gemm_{phase}_128x256", 0.30),
            *more,
        ):
            thread.append(
                Kernel(
                    name=name, dur_ns=self._noisy(dur_ns * share * factor), call_ns=self._call_ns()
                )
            )

    def _gradient_reduce(self) -> None:
        group = self.groups.get(f"dp{self.tp}.{self.pp}")
        if group is None:
            return
        stream = COMPUTE if self.job.faults.is_serialized else DATA_COMM
        size_bytes = self.job.gradient_bytes // self.job.n_buckets
        self.autograd += [
            StreamWait(stream=stream, on_stream=COMPUTE),
            Collective(
                group=group,
                operation="all_reduce",
                size_bytes=size_bytes,
                transfer_ns=self.job.gradient_ns // self.job.n_buckets,
                stream=stream,
            ),
        ]

    def _tensor_reduce(self, thread: list[Operation]) -> None:
        group = self.groups.get(f"tp{self.dp}.{self.pp}")
        if group is not None:
            thread += [
                StreamWait(stream=TENSOR_COMM, on_stream=COMPUTE),
                Collective(
                    group=group,
                    operation="all_reduce",
                    size_bytes=self.job.activation_bytes,
                    transfer_ns=self.job.tensor_ns,
                    stream=TENSOR_COMM,
                ),
                StreamWait(stream=COMPUTE, on_stream=TENSOR_COMM),
            ]

    def _message(self, thread: list[Operation], stage: int, *, is_send: bool) -> None:
        """Send to, or receive from, the neighbouring stage; each way has a stream of its own."""
        stream = SEND if is_send else RECV
        before = StreamWait(stream=stream, on_stream=COMPUTE)
        message = Message(
            group=self.groups[f"pp{self.dp}.{self.tp}"],
            peer=self.job.rank(self.dp, self.tp, stage),
            is_send=is_send,
            size_bytes=self.job.activation_bytes,
            transfer_ns=self.job.activation_ns,
            stream=stream + (0 if stage > self.pp else 1),
        )
        after = StreamWait(stream=COMPUTE, on_stream=message.stream)
        thread += [before, message] if is_send else [message, after]

    def _optimize(self) -> None:
        if f"dp{self.tp}.{self.pp}" in self.groups:
            self.main.append(StreamWait(stream=COMPUTE, on_stream=DATA_COMM))
        self.main.append(Begin(name="Optimizer.step#AdamW.step", category="annotation"))
        for _ in range(4):
            name = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>"
            dur_ns = self._noisy(self.job.optimizer_ns / 4)
            self.main.append(Kernel(name=name, dur_ns=dur_ns, call_ns=self._call_ns()))
        self.main.append(End())

    def _n_layers(self) -> int:
        return self.job.n_layers // self.job.n_pp

    def _call_ns(self) -> int:
        return int(self.job.call_ns * self.job.faults.call_factor.get(self.rank, 1.0))

    def _noisy(self, dur_ns: float) -> int:
        return max(1_000, int(dur_ns * self.random.lognormvariate(0.0, self.job.jitter_share)))


def _schedule(job: Job, stage: int) -> list[tuple[bool, int]]:
    """Order of forward (True) and backward micro-batches of a stage: 1F1B."""
    n = job.n_micro_batches
    n_warm = min(job.n_pp - 1 - stage, n)
    order = [(True, m) for m in range(n_warm)]
    for m in range(n - n_warm):
        order += [(True, n_warm + m), (False, m)]
    return order + [(False, m) for m in range(n - n_warm, n)]
