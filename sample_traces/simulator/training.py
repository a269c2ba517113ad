"""Programs of a training job: what each rank's threads call, step after step.

The training thread loads, launches forward turns and the optimizer; the autograd thread launches
backward turns meanwhile. Communication runs on streams of its own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tracekit.sample_traces.simulator.job import groups
from tracekit.sample_traces.simulator.layers import encoder, layer
from tracekit.sample_traces.simulator.loader import feeding, next_batch
from tracekit.sample_traces.simulator.operations import (
    Await,
    Begin,
    Collective,
    Copy,
    End,
    HostWork,
    Kernel,
    Message,
    Operation,
    Program,
    Signal,
    StreamWait,
    Synchronize,
)
from tracekit.sample_traces.simulator.schedules import Turn, turns

if TYPE_CHECKING:
    from tracekit.sample_traces.simulator.job import Job
    from tracekit.sample_traces.simulator.operations import Group

MAIN, AUTOGRAD = 1, 2
"""Thread numbers: the training thread launches forward and optimizer, the other one backward."""
COMPUTE, DATA_COMM, TENSOR_COMM, EXPERT_COMM = 7, 20, 24, 26
COUNT_COMM = 44
RING_SEND, RING_RECV = 36, 37
OFFLOAD, PCIE_BYTES_PER_NS = 40, 25
SEND, RECV = 28, 32
"""Streams of messages forward; those of messages backward are the next number."""


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
        self.n_transfers: dict[str, int] = {}
        self.groups = {group.name: group for group in groups(job)}

    def program(self) -> Program:
        for step in self.job.steps:
            self._step(step)
        if self.rank == self.job.faults.absent:
            self.main += [self._count() for _ in self.job.steps]
        self.main.append(Synchronize())
        loader = self.job.loader if self.pp == 0 else None
        feed = feeding(self.job, loader, self.rank) if loader else {}
        return {MAIN: self.main, AUTOGRAD: self.autograd, **feed}

    def _step(self, step: int) -> None:
        job, faults = self.job, self.job.faults
        self.main.append(Begin(name=f"ProfilerStep#{step}", category="annotation"))
        if self.pp == 0:  # only the first stage reads
            self._load(step)
        pause_ns = faults.pause_ns.get((self.rank, step), 0)
        if pause_ns:
            self.main.append(HostWork(dur_ns=pause_ns))
        collection_ns = faults.collection_ns.get((self.rank, step), 0)
        if collection_ns:
            name = "tracekit.gc generation 2"
            self.main.append(HostWork(dur_ns=collection_ns, name=name, category="annotation"))
        name, dur_ns = faults.host_work.get((self.rank, step), ("", 0))
        if dur_ns:
            self.main.append(HostWork(dur_ns=dur_ns, name=name, category="cpu_op"))
        self._allocate(faults.allocation_ns.get((self.rank, step), 0))
        for turn in turns(job, self.pp):
            if turn.is_forward:
                self._forward(step, turn)
            else:
                self._backward(step, turn)
        if faults.absent not in {None, self.rank}:
            self.main.append(self._count())
        self._optimize()
        if job.is_synced:  # the loss is printed
            self.main += [Begin(name="aten::item"), Synchronize(stream=COMPUTE), End()]
        self.main.append(End())

    def _count(self) -> Collective:
        """All ranks reduce a count, on a stream that nothing waits for."""
        return Collective(
            group=self.groups["0"],
            operation="all_reduce",
            size_bytes=8,
            transfer_ns=20_000,
            stream=COUNT_COMM,
        )

    def _load(self, step: int) -> None:
        """The batch comes from the loader and goes to the device."""
        if self.job.loader:
            self.main += next_batch(self.job, self.job.loader, step)
        else:
            load_ns = self.job.loader_ns + self.job.faults.load_ns
            load_ns += self.job.faults.loader_ns.get((self.rank, step), 0)
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            self.main += [Begin(name=name, category="annotation"), HostWork(dur_ns=load_ns), End()]
        self.main.append(Copy(kind="HtoD", size_bytes=8 << 20, dur_ns=self._kernel_ns(400_000)))

    def _allocate(self, dur_ns: int) -> None:
        """The caching allocator goes to the driver; to free blocks it waits for the device."""
        if dur_ns and self.job.faults.is_freeing:
            self.main.append(Synchronize(call="cudaFree", dur_ns=dur_ns // 2))
        if dur_ns:
            self.main.append(HostWork(dur_ns=dur_ns, name="cudaMalloc", category="runtime"))

    def _forward(self, step: int, turn: Turn) -> None:
        place = self.pp + self.job.n_pp * turn.chunk
        if place > 0:
            self._message(self.main, place - 1, is_forward=True, is_send=False)
        if place == 0:
            self._encode(self.main, "forward", step)
        for number in range(self._n_layers()):
            self._layer(self.main, "forward", step, turn, number)
        if place + 1 < self.job.n_pp * self.job.n_chunks:
            self._message(self.main, place + 1, is_forward=True, is_send=True)

    def _backward(self, step: int, turn: Turn) -> None:
        """Backward runs on the autograd thread while the training thread waits for it."""
        job = self.job
        token = f"{step}.{turn.micro_batch}.{turn.chunk}"
        self.main += [Signal(f"go {token}"), Await(f"done {token}")]
        self.autograd.append(Await(f"go {token}"))
        place = self.pp + job.n_pp * turn.chunk
        if place + 1 < job.n_pp * job.n_chunks:
            self._message(self.autograd, place + 1, is_forward=False, is_send=False)
        n_layers = self._n_layers()
        per_bucket = max(1, n_layers * job.n_chunks // job.n_buckets)
        name = "autograd::engine::evaluate_function: LinearBackward"
        for number in reversed(range(n_layers)):
            self.autograd.append(Begin(name=name))
            self._layer(self.autograd, "backward", step, turn, number)
            self.autograd.append(End())
            is_synced = job.faults.is_synced_each or turn.micro_batch == job.n_micro_batches - 1
            if is_synced and job.faults.n_parts:
                self._reduce_parts(1 / (n_layers * job.n_chunks))
            elif is_synced and number % per_bucket == 0:
                self._gradient_reduce(1 / job.n_buckets)
        if place == 0:
            self._encode(self.autograd, "backward", step)
        else:
            self._message(self.autograd, place - 1, is_forward=False, is_send=True)
        self.autograd.append(Signal(f"done {token}"))

    def _layer(
        self, thread: list[Operation], phase: str, step: int, turn: Turn, number: int
    ) -> None:
        job, faults = self.job, self.job.faults
        dur_ns = job.forward_ns if phase == "forward" else job.backward_ns
        factor = faults.micro_batch_factor.get(turn.micro_batch, 1.0)
        longer = faults.attention_factor.get((self.rank, step), 1.0)
        thread += layer(job, self.rank, self.random, phase, dur_ns * factor, longer)
        self._ring(thread, phase)
        self._reduce(thread, f"tp{self.dp}.{self.pp}", TENSOR_COMM, job.tensor_ns)
        self._experts(thread, phase, number)

    def _ring(self, thread: list[Operation], phase: str) -> None:
        """Attention over chunks of a sequence, of which others hold all but one."""
        job = self.job
        if job.n_cp == 1:
            return
        group = self.groups[f"cp{self.dp // job.n_cp}.{self.tp}.{self.pp}"]
        place, n = group.members.index(self.rank), job.n_cp
        for chunk in range(n):
            if chunk and job.ring_ns:
                thread.append(StreamWait(stream=COMPUTE, on_stream=RING_RECV))
            if chunk + 1 < n and job.ring_ns:
                for peer, is_send in (((place + 1) % n, True), ((place - 1) % n, False)):
                    stream = RING_SEND if is_send else RING_RECV
                    message = Message(
                        group=group,
                        peer=group.members[peer],
                        is_send=is_send,
                        size_bytes=job.activation_bytes,
                        transfer_ns=job.ring_ns,
                        stream=stream,
                    )
                    thread += [StreamWait(stream=stream, on_stream=COMPUTE), message]
            kernel = Kernel(
                name=f"flash_chunk_{phase}_kernel",
                dur_ns=self._kernel_ns(job.chunk_ns),
                call_ns=self._call_ns(),
            )
            thread += [Begin(name="aten::_flash_attention"), kernel, End()]

    def _encode(self, thread: list[Operation], phase: str, step: int) -> None:
        """Images go through an encoder before the first layer, and gradients after it."""
        if self.job.encoder_ns:
            factor = self.job.faults.encoder_factor.get((self.rank, step), 1.0)
            dur_ns = self.job.encoder_ns * factor * (1 if phase == "forward" else 2)
            thread += encoder(self.job, self.rank, self.random, phase, dur_ns)

    def _experts(self, thread: list[Operation], phase: str, number: int) -> None:
        """Tokens go to the ranks of their experts, are worked on there, and come back."""
        name = f"ep{self.dp // self.job.n_ep}.{self.tp}.{self.pp}"
        if name not in self.groups:
            return
        self._exchange(thread, name)
        factor = self.job.faults.expert_factor.get(self.rank, 1.0) * self._tokens(number)
        times = 1 if phase == "forward" else 2
        dur_ns = self._kernel_ns(self.job.expert_ns * factor * times)
        thread += [
            Begin(name="aten::_grouped_mm"),
            Kernel(name=f"grouped_gemm_{phase}_kernel", dur_ns=dur_ns, call_ns=self._call_ns()),
            End(),
        ]
        self._exchange(thread, name)

    def _exchange(self, thread: list[Operation], name: str) -> None:
        """All-to-all of tokens: a rank that has more of them takes longer than the others."""
        more = self.job.faults.exchange_factor.get(self.rank, 1.0)
        exchange_ns = round(self.job.exchange_ns * more)
        self._reduce(thread, name, EXPERT_COMM, exchange_ns, operation="all_to_all", more=more)

    def _transfer_ns(self, group: Group, nominal_ns: int) -> int:
        """How long a collective of a group takes once all its members are there."""
        faults = self.job.faults
        factor = faults.group_factor.get(group.name, 1.0)
        number = self.n_transfers[group.name] = self.n_transfers.get(group.name, 0) + 1
        if faults.tail_every and group.name.startswith("dp") and number % faults.tail_every == 0:
            factor *= faults.tail_factor
        return round(nominal_ns * factor)

    def _tokens(self, number: int) -> float:
        """Share of the tokens of a layer that this rank's experts get, of an even one."""
        hot, n_ep = self.job.faults.hot_expert_factor, self.job.n_ep
        return hot if self.dp % n_ep == number % n_ep else (n_ep - hot) / (n_ep - 1)

    def _reduce_parts(self, share: float) -> None:
        """The gradients of a layer, tensor by tensor: each two thirds of the one before."""
        weights = [(2 / 3) ** i for i in range(self.job.faults.n_parts)]
        for weight in weights:
            self._gradient_reduce(share * weight / sum(weights))

    def _gradient_reduce(self, share: float) -> None:
        """Reduce a share of all gradients over the data-parallel ranks."""
        group = self.groups.get(f"dp{self.tp}.{self.pp}")
        if group is None:
            return
        stream = COMPUTE if self.job.faults.is_serialized else DATA_COMM
        self._copy_bucket(self.autograd, "CatArrayBatchedCopy_contig")
        nominal_ns = self.job.latency_ns + int(self.job.gradient_ns * share)
        transfer_ns = self._transfer_ns(group, nominal_ns)
        every = self.job.faults.copy_every
        if every and self.n_transfers[group.name] % every == 0:
            transfer_ns = round(transfer_ns * self.job.faults.contention_factor)
            self._copy_beside(stream, transfer_ns)
        self.autograd += [
            StreamWait(stream=stream, on_stream=COMPUTE),
            Collective(
                group=group,
                operation="all_reduce",
                size_bytes=int(self.job.gradient_bytes * share),
                transfer_ns=transfer_ns,
                stream=stream,
            ),
        ]
        if self.job.faults.is_awaited:
            self.autograd.append(StreamWait(stream=COMPUTE, on_stream=stream))

    def _copy_bucket(self, thread: list[Operation], name: str) -> None:
        """Tensors of a bucket are copied into one buffer, or out of it."""
        dur_ns = self.job.faults.bucket_copy_ns
        if dur_ns:
            thread += [Begin(name="aten::cat"), Kernel(name=name, dur_ns=dur_ns), End()]

    def _copy_beside(self, stream: int, dur_ns: int) -> None:
        """Something goes to the host while the next reduction runs, from pinned memory."""
        nbytes = dur_ns * PCIE_BYTES_PER_NS
        self.autograd += [
            StreamWait(stream=OFFLOAD, on_stream=COMPUTE),
            StreamWait(stream=OFFLOAD, on_stream=stream),
            Copy(kind="DtoH", size_bytes=nbytes, dur_ns=dur_ns, stream=OFFLOAD),
        ]

    def _reduce(
        self,
        thread: list[Operation],
        name: str,
        stream: int,
        transfer_ns: int,
        operation: str = "all_reduce",
        more: float = 1.0,
    ) -> None:
        """A collective of activations that the next kernel needs; none without its group."""
        group = self.groups.get(name)
        if group is None:
            return
        thread += [
            StreamWait(stream=stream, on_stream=COMPUTE),
            Collective(
                group=group,
                operation=operation,
                size_bytes=round(self.job.activation_bytes * more),
                transfer_ns=self._transfer_ns(group, transfer_ns),
                stream=stream,
            ),
            StreamWait(stream=COMPUTE, on_stream=stream),
        ]

    def _message(
        self, thread: list[Operation], place: int, *, is_forward: bool, is_send: bool
    ) -> None:
        """Send to, or receive from, the stage of a place; each way has a stream of its own."""
        peer = self.job.rank(self.dp, self.tp, place % self.job.n_pp)
        factor = self.job.faults.link_factor.get((min(self.rank, peer), max(self.rank, peer)), 1.0)
        message = Message(
            group=self.groups[f"pp{self.dp}.{self.tp}"],
            peer=peer,
            is_send=is_send,
            tag="forward" if is_forward else "backward",
            size_bytes=self.job.activation_bytes,
            transfer_ns=round(self.job.activation_ns * factor),
            stream=(SEND if is_send else RECV) + (0 if is_forward else 1),
        )
        if is_send:
            thread += [StreamWait(stream=message.stream, on_stream=COMPUTE), message]
        else:
            thread += [message, StreamWait(stream=COMPUTE, on_stream=message.stream)]

    def _optimize(self) -> None:
        if f"dp{self.tp}.{self.pp}" in self.groups:
            self.main.append(StreamWait(stream=COMPUTE, on_stream=DATA_COMM))
            for _ in range(self.job.n_buckets):
                self._copy_bucket(self.main, "split_with_sizes_copy_out_contiguous_no_cast_kernel")
        self.main.append(Begin(name="Optimizer.step#AdamW.step", category="annotation"))
        for _ in range(4):
            name = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>"
            dur_ns = self._kernel_ns(self.job.optimizer_ns / 4)
            self.main.append(Kernel(name=name, dur_ns=dur_ns, call_ns=self._call_ns()))
        self.main.append(End())

    def _n_layers(self) -> int:
        return self.job.n_layers // (self.job.n_pp * self.job.n_chunks)

    def _call_ns(self) -> int:
        return self.job.host_call_ns(self.rank, self.random)

    def _kernel_ns(self, dur_ns: float) -> int:
        return self.job.noise.kernel_ns(self.random, dur_ns)
