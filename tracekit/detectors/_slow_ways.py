"""Slow ways that NCCL's log lists: sockets, RDMA through the host, no peer access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.fabrics import fabric
from tracekit.derive.links import (
    BETWEEN,
    GPU_DIRECT,
    HOST_MEMORY,
    PEER,
    SHARED,
    SOCKETS,
    WITHIN,
    links,
    said,
)
from tracekit.detectors._nccl_log import Problem, set_badly
from tracekit.findings import Cause, Change, Confidence, Level, Recommendation
from tracekit.schema import TRANSPORTS
from tracekit.units import Quantity, Unit

if TYPE_CHECKING:
    from tracekit.store import Run

ANY_BUT_SYSTEM = r"(?!SYS$|5$).+"
"""A level of distance that leaves some devices out: SYS, once 5, is all of them."""
ON = r"[1-9]\d*"
AGAINST_RDMA = {"NCCL_IB_DISABLE": ON, "NCCL_NET": r"(?i)socket", "NCCL_NET_PLUGIN": r"(?i)none"}
AGAINST_GPU_DIRECT = {
    "NCCL_NET_GDR_LEVEL": ANY_BUT_SYSTEM,
    "NCCL_IB_CUDA_SUPPORT": "0",
    "NCCL_DMABUF_ENABLE": "0",
}
AGAINST_PEERS = {"NCCL_P2P_DISABLE": ON, "NCCL_P2P_LEVEL": ANY_BUT_SYSTEM, "NCCL_SHM_DISABLE": ON}
ASK_THE_LOG = Recommendation(
    "Run the job with NCCL_DEBUG=INFO: without GDRDMA behind NET/IB, GPUDirect RDMA is off or "
    "access control (ACS) of PCIe on; NET/Socket goes over TCP. Where both are right, measure the "
    "nodes of this group with nccl-tests, and look for an adapter that several GPUs share.",
    Change.SETTING,
    (
        "export NCCL_DEBUG=INFO",
        "lsmod | grep -e nvidia_peermem -e nv_peer_mem || modprobe nvidia_peermem",
        "lspci -vvv | grep -i acsctl  # SrcValid+ redirects peer traffic to the host",
    ),
)
"""What slows transfers between nodes most often, where no log tells which."""


def cause_of(run: Run, ranks: tuple[int, ...], place: str) -> dict[str, Any]:
    """Cause, why and advice of slow transfers at a place, as fields of a finding.

    A slow way that the log lists for the ranks (of none given, for any) is the cause.
    """
    own = set(ranks or run.ranks)
    for problem in slow_ways(run):
        if problem.place == place and own & set(problem.ranks):
            advice = f"The log shows {problem.named}: take it away. " if problem.culprits else ""
            text = f"{advice}{problem.check}"
            return {
                "cause": Cause.TOPOLOGY_SETTING,
                "why": f"{problem.subject}: {problem.because}",
                "recommendation": Recommendation(text, Change.SETTING, problem.commands),
            }
    is_open = place == BETWEEN and not run.n_rows(TRANSPORTS.name)
    return {"cause": Cause.SLOW_GROUP, "recommendation": ASK_THE_LOG if is_open else None}


def slow_ways(run: Run) -> tuple[Problem, ...]:
    """What of the connections goes a slow way, however little; nothing without a log."""
    problems = (_sockets(run), _no_gpu_direct(run), _no_peers(run))
    return tuple(each for each in problems if each is not None)


def _share(run: Run, place: str, way: str, among: pl.Expr) -> tuple[float, int, tuple[int, ...]]:
    """Share of the connections of a place that go this way, how many there are, whose they are."""
    rows = links(run).filter((pl.col("place") == place) & among)
    slow = rows.filter(way=way)
    n, n_slow = int(rows["n_connections"].sum()), int(slow["n_connections"].sum())
    ranks = tuple(slow.select(pl.col("ranks").explode().unique().sort())["ranks"].to_list())
    return (n_slow / n if n else 0.0), n, ranks if n_slow else ()


def _sockets(run: Run) -> Problem | None:
    share, n, ranks = _share(run, BETWEEN, SOCKETS, pl.lit(value=True))
    if not ranks:
        return None
    seen, check, commands = _rdma_seen(run)
    return Problem(
        subject="sockets between nodes",
        place=BETWEEN,
        title="Nodes talk over TCP sockets in place of RDMA",
        measured=Quantity(share, Unit.SHARE),
        confidence=_told(n),
        ranks=ranks,
        why=f"the log lists sockets between nodes; {seen}",
        culprits=set_badly(run, AGAINST_RDMA),
        check=check,
        commands=commands,
    )


def _rdma_seen(run: Run) -> tuple[str, str, tuple[str, ...]]:
    """Whether the log saw an RDMA device, what to check then, and commands."""
    of_ib = said(run).filter(pl.col("name").str.starts_with("NET/IB"))["text"]
    named = [text for text in of_ib if "[0]" in text]
    if named:
        return (
            f"it saw RDMA devices ({named[0][:60]})",
            (
                "RDMA devices are there and not used: check that their ports are active, and that "
                "the network plugin is the right one."
            ),
            ("ibstat", "export NCCL_NET=IB  # fails, and says why, where it cannot be used"),
        )
    check = (
        "Give the container the devices (/dev/infiniband, with the limit on locked memory off) or, "
        "in a cloud, its network plugin (aws-ofi-nccl for EFA)."
    )
    commands = ("ls /dev/infiniband; ibv_devinfo", "docker run --device /dev/infiniband …")
    if any("No device found" in text for text in of_ib):
        return "it found no RDMA device", check, commands
    return "it does not say whether there is an RDMA device", check, commands


def _no_gpu_direct(run: Run) -> Problem | None:
    is_rdma = pl.col("way").is_in([GPU_DIRECT, HOST_MEMORY])
    has_receiving = not links(run).filter(is_rdma & (pl.col("direction") == "receive")).is_empty()
    counted = is_rdma & (pl.col("direction") == "receive") if has_receiving else is_rdma
    share, n, ranks = _share(run, BETWEEN, HOST_MEMORY, counted)
    if not ranks:
        return None
    return Problem(
        subject="no GPUDirect RDMA",
        place=BETWEEN,
        title="Adapters do not reach GPU memory: no GPUDirect RDMA",
        measured=Quantity(share, Unit.SHARE),
        confidence=_told(n),
        ranks=ranks,
        why="connections between nodes are listed without GDRDMA, so all bytes go through the host",
        culprits=set_badly(run, AGAINST_GPU_DIRECT),
        check="Check that nvidia_peermem is loaded (or DMA-BUF is there), that access control "
        "(ACS) is off on the PCIe switches, and that GPU and adapter share one.",
        commands=(
            "lsmod | grep -e nvidia_peermem -e nv_peer_mem || modprobe nvidia_peermem",
            "lspci -vvv | grep -i acsctl  # SrcValid+ redirects peer traffic to the host",
            "nvidia-smi topo -m  # PIX or PXB between GPU and adapter",
        ),
    )


def _no_peers(run: Run) -> Problem | None:
    # over the network inside one node: neither peers nor shared memory are allowed
    is_on_host = links(run).filter((pl.col("place") == WITHIN) & (pl.col("way") != PEER))
    network = is_on_host.filter(pl.col("way") != SHARED)["n_connections"].sum()
    way = SHARED if network <= is_on_host["n_connections"].sum() / 2 else is_on_host["way"][0]
    share, n, ranks = _share(run, WITHIN, way, pl.lit(value=True))
    if not ranks:
        return None
    joined = fabric(run)
    if joined is None:
        sure = Confidence(Level.LOW, "which GPUs these are is not known: some have no peer access")
    elif joined.is_direct:
        sure = Confidence(Level.HIGH, f"of {n} connections; these GPUs have {joined.name}")
    else:
        sure = Confidence(Level.LOW, f"{joined.name}: peer access depends on the server")
    return Problem(
        subject="no peer access",
        place=WITHIN,
        title="GPUs of a node talk through host memory",
        measured=Quantity(share, Unit.SHARE),
        confidence=sure,
        ranks=ranks,
        why=f"connections within a node are listed over {way}",
        culprits=set_badly(run, AGAINST_PEERS),
        check="Check that the GPUs see each other: one container or namespace for all of a node, "
        "IOMMU and access control (ACS) of PCIe off, the fabric manager running.",
        commands=(
            "nvidia-smi topo -p2p r",
            "nvidia-smi nvlink --status",
            "systemctl status nvidia-fabricmanager",
        ),
    )


def _told(n: int) -> Confidence:
    return Confidence(Level.HIGH, f"NCCL's own list of {n} connections")
