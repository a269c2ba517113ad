"""The collectives of one group take longer than the same collectives of its peers.

What it measures:
    Transfers of a group, from its last arrival on: nobody inside it is waited for. Peers are groups
    of the same parallel dimension whose members lie equally far apart; they move the same bytes.

Formula:
    For each operation and size p50(group), and its median over the peers, of two the faster one.
    measured = Σ n · p50 / Σ n · p50 of peers. Extra time of a step = exposed transfer of the group
    in the mean step × (1 − 1 / measured).

Threshold:
    Found when measured is at least `max_ratio` and the extra time at least `min_step_share` of a
    step. Skipped where no group has a peer, and of jobs without devices.

Evidence:
    Transfers by group against those of peers, with the hosts of its members; the group's sizes.

What-if saving:
    Low: the extra time that nothing hides, which a replay gives in which its transfers take what
    those of peers take. High: all that its transfers take longer.

Recommendation:
    The members share a link or an adapter that is slow, or shared: measure it with nccl-tests on
    the nodes of this group and on those of a peer.

References:
    https://github.com/NVIDIA/nccl/issues/820 (GPUs that share an adapter).
    https://arxiv.org/abs/2505.23105 (LUMION: a spare host slows the groups that hold it).
    https://arxiv.org/abs/2512.12476 (HetRL: groups that cross regions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.derive.peer_transfers import of_groups
from tracekit.detectors import Detector
from tracekit.detectors._against_peers import Places, slow_places
from tracekit.detectors._cures import groups_like_peers
from tracekit.findings import Cause, Finding, Published
from tracekit.schema import COLLECTIVES
from tracekit.units import Unit, limit

if TYPE_CHECKING:
    from tracekit.store import Run

GROUPS = Places(
    placed=of_groups,
    what="group",
    calls="Collectives of group",
    cause=Cause.SLOW_GROUP,
    why_none=(
        "no group has a peer: another one of the same dimension whose members lie equally far "
        "apart. Record all ranks, with the process groups (torch 2.4 or later writes them)."
    ),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much slower than its peers a group must be, and for how much of a step."""

    max_ratio: float = limit(
        1.3, Unit.RATIO, "Medians of groups on healthy fabrics differ by less than a fifth."
    )
    min_step_share: float = limit(
        0.01, Unit.SHARE, "What nothing hides of less than a hundredth is not worth a search."
    )
    min_calls: int = limit(
        4, Unit.COUNT, "The median of fewer calls is that of one or two unlucky ones."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for each slow group, the slowest first; else one for the run."""
    return slow_places(DETECTOR, run, limits, GROUPS)


DETECTOR = Detector(
    id="slow-group",
    title="One group's collectives are slow",
    clear="Collectives take peers equally long",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CUDA activity on.",
    min_ranks=4,
    limits=Limits,
    detect=detect,
    cure=groups_like_peers,
    published=(
        Published(2, "LUMION", "2505.23105"),
        Published(13, "HetRL", "2512.12476"),
    ),
)
