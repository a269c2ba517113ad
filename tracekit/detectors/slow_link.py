"""Messages over one link take longer than the same messages over its peers.

What it measures:
    Transfers of messages between two ranks, from the later of both on: neither is waited for. A
    link is a pair of ranks; where hosts are known and differ, a pair of hosts. Peers are links of
    the same parallel dimension whose ends lie equally far apart; they carry the same bytes.

Formula:
    For each size p50(link), and its median over the peers, of two the faster one.
    measured = Σ n · p50 / Σ n · p50 of peers. Extra time of a step = exposed transfer of the
    receivers in the mean step × (1 − 1 / measured).

Threshold:
    Found when measured is at least `max_ratio` and the extra time at least `min_step_share` of a
    step. Skipped where no link has a peer, and of jobs without devices.

Evidence:
    Transfers by link against those of peers, with the hosts of its ends; the link's sizes.

What-if saving:
    Low: the extra time that nothing hides, which a replay gives in which its transfers take what
    those of peers take. High: all that its transfers take longer.

Recommendation:
    Measure this link and one of its peers with sendrecv_perf of nccl-tests; look at what lies
    between the two ranks (nvidia-smi topo -m), and at errors and width of the link.

References:
    https://github.com/NVIDIA/nccl-tests (sendrecv_perf).
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.derive.peer_transfers import of_links
from tracekit.detectors import Detector
from tracekit.detectors._against_peers import Places, slow_places
from tracekit.detectors._cures import links_like_peers
from tracekit.findings import Cause, Finding
from tracekit.schema import COLLECTIVES
from tracekit.units import Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run

LINKS = Places(
    placed=of_links,
    what="link",
    calls="Messages between",
    cause=Cause.SLOW_LINK,
    why_none=(
        "no two ranks that send each other messages have peers: another pair equally far apart. "
        "Record all ranks, with the process groups (torch 2.4 or later writes them)."
    ),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much slower than its peers a link must be, and for how much of a step."""

    max_ratio: float = limit(
        1.3, Unit.RATIO, "Medians of links on healthy fabrics differ by less than a fifth."
    )
    min_step_share: float = limit(
        0.01, Unit.SHARE, "What nothing hides of less than a hundredth is not worth a search."
    )
    min_calls: int = limit(
        4, Unit.COUNT, "The median of fewer calls is that of one or two unlucky ones."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for each slow link, the slowest first; else one for the run."""
    return slow_places(DETECTOR, run, limits, LINKS)


DETECTOR = Detector(
    id="slow-link",
    title="Messages over one link are slow",
    clear="Messages take peers equally long",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CUDA activity on.",
    min_ranks=4,
    limits=Limits,
    detect=detect,
    cure=links_like_peers,
)
