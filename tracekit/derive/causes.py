"""What a part of a step, or of a rank's lateness, is called as a cause, and in half a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.derive.activity import has_device_events
from tracekit.findings import Cause
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.store import Run

SLOWER, MORE, COPIES = "same kernels slower", "more or bigger kernels", "copies"
COMMUNICATION, INHERITED = "communication", "late at the start"
LONGER_SAMPLES = "longer samples"
LONGER_SEQUENCES, HOTTER_EXPERTS, OTHER_MODEL = "longer sequences", "more tokens", "another GPU"
HELD_BACK, MORE_IMAGES = "a lower clock", "more for its encoder"
CARRIED = "late in the collective before"

_CAUSES = {
    SLOWER: (Cause.SLOW_DEVICE, "its kernels run slower"),
    MORE: (Cause.DATA_IMBALANCE, "it has more or bigger kernels to run"),
    LONGER_SAMPLES: (
        Cause.SEQUENCE_LENGTH_IMBALANCE,
        "its samples are longer, as the loop told",
    ),
    LONGER_SEQUENCES: (
        Cause.SEQUENCE_LENGTH_IMBALANCE,
        "its attention takes longer than its matrix products explain: its sequences are longer",
    ),
    HOTTER_EXPERTS: (Cause.EXPERT_IMBALANCE, "its experts get more tokens"),
    OTHER_MODEL: (Cause.HETEROGENEOUS_DEVICE, "its GPU is of another model than its peers'"),
    HELD_BACK: (
        Cause.THROTTLED_DEVICE,
        "its kernels run slower, and its device at a lower clock or under a limit",
    ),
    COPIES: (Cause.COPY_IN_OUT, "it copies more"),
    "host-sync": (Cause.HOST_SYNC, "its host waits for the device"),
    "input-pipeline": (Cause.INPUT_PIPELINE, "it waits for its input"),
    "allocator": (Cause.ALLOCATOR, "its allocator goes back to the driver"),
    "compilation": (Cause.COMPILATION, "it compiles"),
    "checkpoint": (Cause.CHECKPOINT, "it writes a checkpoint"),
    "cpu-optimizer": (Cause.CPU_OPTIMIZER, "its optimizer runs on the CPU"),
    "garbage-collection": (Cause.GARBAGE_COLLECTION, "its Python collects garbage"),
    "launch-overhead": (Cause.LAUNCH_OVERHEAD, "its host launches slowly"),
    "host-other": (Cause.HOST_OTHER, "its host does something that no operator records"),
    COMMUNICATION: (Cause.UNKNOWN, "it is held up in communication"),
    MORE_IMAGES: (Cause.MODALITY_IMBALANCE, "its encoder of another modality takes longer"),
    CARRIED: (Cause.UNKNOWN, "it was as late in the collective before"),
    INHERITED: (Cause.UNKNOWN, "it was late already when it last met the others"),
}


_ON_HOST = {
    SLOWER: "its operators run slower",
    MORE: "it has more or bigger operators to run",
}
"""Where the training thread stands for the device."""


def reason(run: Run, part: str, extra_ns: float) -> str:
    """Half a sentence for people: what the late rank does, and how much longer than its peers."""
    what = _CAUSES[part][1] if part in _CAUSES else f"its device is idle ({part})"
    if not has_device_events(run):
        what = _ON_HOST.get(part, what)
    return f"{what}, {text(extra_ns, Unit.NS)} a step more than its median peer"


def cause_of(part: str) -> Cause:
    """Cause of a part of a step or of idle time; unknown where the trace cannot tell."""
    return _CAUSES[part][0] if part in _CAUSES else Cause.UNKNOWN


def cause_of_lateness(run: Run, part: str) -> Cause:
    """Cause of a rank's lateness: one that launches more slowly than its peers has a slow host."""
    if part == "launch-overhead":
        return Cause.SLOW_HOST
    return cause_of_slowness(run) if part == SLOWER else cause_of(part)


def cause_of_slowness(run: Run) -> Cause:
    """Cause of the same work taking longer: the device, or the host where there is no device."""
    return Cause.SLOW_DEVICE if has_device_events(run) else Cause.SLOW_HOST
