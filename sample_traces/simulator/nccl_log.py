"""What NCCL's log and nccl-tests would print of a simulated job, beside its traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("kernels", "alloc", "bootstrap", "allgathers", "topo", "graphs", "connections", "rest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How NCCL came up: nodes of `n_local` ranks each, and by what they talk.

    `network` is what stands behind "via" between nodes, `local` within one. `said` are lines of
    every process, `init_s` how long the parts of making the communicator take, in seconds.
    """

    world_size: int
    n_local: int
    network: str = "NET/IB/0/GDRDMA"
    local: str = "P2P/CUMEM"
    n_channels: int = 16
    said: tuple[str, ...] = ()
    init_s: dict[str, float] = field(default_factory=lambda: {"topo": 0.4, "bootstrap": 0.2})

    def host(self, rank: int) -> str:
        """Name of the node of a rank."""
        return f"node{rank // self.n_local}"


def write_log(path: Path, setup: Setup) -> None:
    """Write the log of all ranks, one after another, in the form of 2.27."""
    lines = ["node0:100:100 [0] NCCL INFO NCCL version 2.27.3+cuda12.9"]
    for rank in range(setup.world_size):
        device = rank % setup.n_local
        before = f"{setup.host(rank)}:{100 + device}:{200 + device} [{device}] NCCL INFO"
        lines += [f"{before} {text}" for text in _of_rank(setup, rank, device)]
    path.write_text("\n".join(lines) + "\n")


def _of_rank(setup: Setup, rank: int, device: int) -> list[str]:
    n, n_nodes = setup.world_size, -(-setup.world_size // setup.n_local)
    named = f"comm 0x{rank + 1:x}000 rank {rank} nranks {n} cudaDev {device} nvmlDev {device}"
    named = f"{named} busId {device}000 commId 0xfeed"
    local, k = f"localRanks {setup.n_local} localRank {device} MNNVL 0", setup.n_channels
    per_peer = "2 p2p channels per peer"
    after, before = (rank + 1) % n, (rank - 1) % n
    lines = [
        *setup.said,
        f"Using network {setup.network.split('/')[1]}",
        f"ncclCommInitRank {named} - Init START",
        f"NVLS multicast support is available on dev {device} (NVLS_NCHANNELS 16)",
        f"{named.partition(' nranks')[0]} nRanks {n} nNodes {n_nodes} {local}",
        f"{k} coll channels, {k} collnet channels, 0 nvls channels, {k} p2p channels, {per_peer}",
    ]
    for channel in range(setup.n_channels):
        if setup.host(before) != setup.host(rank):
            way = f"[receive] via {setup.network}"
            lines.append(f"Channel {channel:02}/0 : {before}[0] -> {rank}[{device}] {way}")
        is_remote = setup.host(after) != setup.host(rank)
        way = f"[send] via {setup.network}" if is_remote else f"via {setup.local}"
        lines.append(f"Channel {channel:02}/0 : {rank}[{device}] -> {after}[0] {way}")
    parts = {name: setup.init_s.get(name, 0.0) for name in PARTS}
    told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
    total = sum(parts.values())
    lines += [
        f"ncclCommInitRank {named} - Init COMPLETE",
        f"Init timings - ncclCommInitRank: rank {rank} nranks {n} total {total:.2f} ({told})",
    ]
    return lines


def write_baseline(path: Path, setup: Setup, busbw_gb_per_s: dict[int, float]) -> None:
    """Write what all_reduce_perf would print on the same nodes: bus bandwidth by size in bytes."""
    n = setup.world_size
    lines = [
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8G step: 2(factor) warmup iters: 5 iters: 20",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {rank} Group  0 Pid {100 + rank} on {setup.host(rank)} device "
        f"{rank % setup.n_local} [0000:04:00] NVIDIA H100 80GB HBM3"
        for rank in range(n)
    ]
    lines.append("#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong")
    for size_bytes, busbw in sorted(busbw_gb_per_s.items()):
        algbw = busbw / (2 * (n - 1) / n)
        side = f"{size_bytes / algbw / 1e3:.2f} {algbw:.2f} {busbw:.2f} 0"
        lines.append(f"  {size_bytes} {size_bytes // 4} float sum -1 {side} {side}")
    path.write_text("\n".join(lines) + "\n")
