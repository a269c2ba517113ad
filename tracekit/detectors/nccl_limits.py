"""NCCL is held to few channels, or does without NVLink SHARP on GPUs that have it.

What it measures:
    Channels of communicators whose ranks talk peer to peer within a node, and whether NVLink SHARP
    was available on GPUs whose switches have it.

Formula:
    channels = the fewest of a communicator of one node whose connections are all peer to peer.
    Without NVLink SHARP: share of the ranks whose log says that it is not available.

Threshold:
    Found when channels are at most `max_few_channels`, or NVLink SHARP is missing on at least
    `min_share` of the ranks. Skipped without a log, and where it is not known which GPUs these are.

Evidence:
    Communicators by ranks and nodes with their channels; what the log says.

What-if saving:
    None: a log has no times.

Recommendation:
    A variable is blamed only where the log shows it set. Else what to look at.

References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.fabrics import fabric
from tracekit.derive.links import PEER, WITHIN, links
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._nccl_log import HOW, Problem, found, set_badly
from tracekit.findings import Column, Confidence, Evidence, Finding, Level, Status
from tracekit.schema import COMMUNICATORS
from tracekit.units import Quantity, Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run

AGAINST_CHANNELS = dict.fromkeys(
    ("NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_CTAS"), r"[1-9]\d*"
)
AGAINST_NVLS = {"NCCL_NVLS_ENABLE": "0", "NCCL_CUMEM_ENABLE": "0"}
MAX_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Limits:
    """How few channels are few, and on how many ranks NVLink SHARP must be missing."""

    max_few_channels: int = limit(
        2, Unit.COUNT, "Over NVLink NCCL takes at least one for each link: 6 on V100, more since."
    )
    min_share: float = limit(
        0.5, Unit.SHARE, "On a few ranks it is a fault of their node, which the log names."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for few channels, one for NVLink SHARP; else one for the run."""
    table = _channels(run)
    problems = [each for each in (_few_channels(run, limits), _no_nvls(run, limits)) if each]
    if problems:
        return tuple(found(DETECTOR, run, each, bound, (table,)) for each, bound in problems)
    fewest = _of_peers(run)["n_coll_channels"].min()
    if fewest is None:
        return (skipped(DETECTOR, _why_unknown(run), is_of_further_source=True),)
    measured = Quantity(number(fewest), Unit.COUNT)
    bound = Quantity(limits.max_few_channels, Unit.COUNT)
    return (finding(DETECTOR, Status.CLEAR, measured=measured, limit=bound, evidence=(table,)),)


def _why_unknown(run: Run) -> str:
    joined = fabric(run)
    if joined is None:
        return (
            "which GPUs these are, and by what they are joined, is not known. Give traces of the "
            "job, or output of nccl-tests on its nodes, beside the log."
        )
    if not joined.is_direct:
        return f"GPUs joined by {joined.name}: how many channels fill that depends on the server."
    return f"no communicator within a node is known to be one (NCCL 2.18 or later says). {HOW}"


def _of_peers(run: Run) -> pl.DataFrame:
    """Communicators of several ranks of one node over NVLink, whose channels are known."""
    joined = fabric(run)
    within = links(run).filter(place=WITHIN)
    are_peers = set(within["way"]) == {PEER}
    is_one_node = (pl.col("n_nodes") == 1) & (pl.col("n_ranks") > 1)
    rows = run.scan_all("communicators").filter(is_one_node).drop_nulls("n_coll_channels").collect()
    return rows if are_peers and joined is not None and joined.is_direct else rows.clear()


def _few_channels(run: Run, limits: Limits) -> tuple[Problem, Quantity] | None:
    rows = _of_peers(run).filter(pl.col("n_coll_channels") <= limits.max_few_channels)
    if rows.is_empty():
        return None
    fewest = number(rows["n_coll_channels"].min())
    problem = Problem(
        subject="few channels",
        place=WITHIN,
        title=f"NCCL uses {fewest:.0f} channels over NVLink",
        measured=Quantity(fewest, Unit.COUNT),
        confidence=Confidence(Level.MEDIUM, "a channel is a block of the kernel that copies"),
        ranks=tuple(rows["rank"].unique().sort()),
        why="so few blocks do not fill the links",
        culprits=set_badly(run, AGAINST_CHANNELS),
        check="Let NCCL choose, and compare with nccl-tests on the node; a topology file that does "
        "not fit has the same effect.",
        commands=("all_reduce_perf -b 1M -e 1G -f 2 -g 8", "export NCCL_DEBUG_SUBSYS=INIT,GRAPH"),
    )
    return problem, Quantity(limits.max_few_channels, Unit.COUNT)


def _no_nvls(run: Run, limits: Limits) -> tuple[Problem, Quantity] | None:
    joined = fabric(run)
    if joined is None or not joined.has_nvls:
        return None
    rows = run.scan_all("communicators").drop_nulls("is_nvls_available").collect()
    culprits = set_badly(run, AGAINST_NVLS)
    without = rows.group_by("rank").agg(is_off=~pl.col("is_nvls_available").any())
    off = without.filter("is_off")["rank"].sort()
    is_switched_off = without.is_empty() and any(each.startswith("NCCL_NVLS") for each in culprits)
    share = 1.0 if is_switched_off else off.len() / max(1, without.height)
    if share < limits.min_share:
        return None
    problem = Problem(
        subject="no NVLink SHARP",
        place=WITHIN,
        title="NVLink SHARP is off on GPUs that have it",
        measured=Quantity(share, Unit.SHARE),
        confidence=Confidence(Level.HIGH, f"the log says so; these GPUs have {joined.name}"),
        ranks=run.ranks if is_switched_off else tuple(off),
        why="reductions within a node do not use the switches",
        culprits=culprits,
        check="Check that the fabric manager runs and its version is the driver's, and that all "
        "GPUs of the node are visible to the job; a virtual machine needs them passed as a whole.",
        commands=(
            "systemctl status nvidia-fabricmanager",
            "nvidia-smi -q | grep -A3 Fabric  # State: Completed",
        ),
    )
    return problem, Quantity(limits.min_share, Unit.SHARE)


def _channels(run: Run) -> Evidence:
    rows = (
        run.scan_all("communicators")
        .filter(pl.col("n_ranks") > 1)
        .group_by("n_ranks", "n_nodes", "n_coll_channels", "n_nvls_channels", "n_p2p_channels")
        .agg(pl.len().cast(pl.Int64))
        .sort("len", "n_ranks", "n_coll_channels", descending=True, nulls_last=True)
        .collect()
    )
    return Evidence(
        title="Channels of communicators",
        columns=(
            Column("ranks", Unit.COUNT),
            Column("nodes", Unit.COUNT),
            Column("of collectives", Unit.COUNT),
            Column("of NVLink SHARP", Unit.COUNT),
            Column("of messages", Unit.COUNT),
            Column("communicators, by rank", Unit.COUNT),
        ),
        rows=tuple(rows.head(MAX_SHOWN).iter_rows()),
    )


DETECTOR = Detector(
    id="nccl-limits",
    title="NCCL is held back by its settings",
    clear="NCCL uses its channels",
    needs=(COMMUNICATORS,),
    how=HOW,
    limits=Limits,
    detect=detect,
)
