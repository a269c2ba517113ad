"""The stored tables of a run. A stored format is public: adding one is a deliberate import here."""

from __future__ import annotations

from tracekit.schema.annotations import ANNOTATIONS
from tracekit.schema.bandwidth_baselines import BANDWIDTH_BASELINES
from tracekit.schema.capture_quality import CAPTURE_QUALITY
from tracekit.schema.collectives import COLLECTIVES
from tracekit.schema.communicator_counts import COMMUNICATOR_COUNTS
from tracekit.schema.communicators import COMMUNICATORS
from tracekit.schema.copies import COPIES
from tracekit.schema.cpu_ops import CPU_OPS
from tracekit.schema.flight_groups import FLIGHT_GROUPS
from tracekit.schema.flight_records import FLIGHT_RECORDS
from tracekit.schema.flight_stacks import FLIGHT_STACKS
from tracekit.schema.kernels import KERNELS
from tracekit.schema.launches import LAUNCHES
from tracekit.schema.memory import MEMORY
from tracekit.schema.nccl_messages import NCCL_MESSAGES
from tracekit.schema.ops import OPS
from tracekit.schema.other_events import OTHER_EVENTS
from tracekit.schema.python_frames import PYTHON_FRAMES
from tracekit.schema.ranks import RANKS
from tracekit.schema.samples import SAMPLES
from tracekit.schema.steps import STEPS
from tracekit.schema.syncs import SYNCS
from tracekit.schema.table import Column, Table
from tracekit.schema.telemetry import TELEMETRY
from tracekit.schema.transports import TRANSPORTS

SCHEMA_VERSION = 2
"""Version of the stored tables; a run of another version is converted again."""

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RANKS,
        STEPS,
        KERNELS,
        COPIES,
        LAUNCHES,
        CPU_OPS,
        ANNOTATIONS,
        PYTHON_FRAMES,
        COLLECTIVES,
        SYNCS,
        MEMORY,
        OTHER_EVENTS,
        OPS,
        FLIGHT_RECORDS,
        FLIGHT_GROUPS,
        FLIGHT_STACKS,
        COMMUNICATORS,
        COMMUNICATOR_COUNTS,
        TRANSPORTS,
        NCCL_MESSAGES,
        BANDWIDTH_BASELINES,
        SAMPLES,
        TELEMETRY,
        CAPTURE_QUALITY,
    )
}

FURTHER = (
    FLIGHT_RECORDS,
    FLIGHT_GROUPS,
    COMMUNICATORS,
    TRANSPORTS,
    NCCL_MESSAGES,
    BANDWIDTH_BASELINES,
)
"""What no trace of a profiler holds, but a source that few jobs have besides."""

__all__ = [
    "ANNOTATIONS",
    "BANDWIDTH_BASELINES",
    "CAPTURE_QUALITY",
    "COLLECTIVES",
    "COMMUNICATORS",
    "COMMUNICATOR_COUNTS",
    "COPIES",
    "CPU_OPS",
    "FLIGHT_GROUPS",
    "FLIGHT_RECORDS",
    "FLIGHT_STACKS",
    "FURTHER",
    "KERNELS",
    "LAUNCHES",
    "MEMORY",
    "NCCL_MESSAGES",
    "OPS",
    "OTHER_EVENTS",
    "PYTHON_FRAMES",
    "RANKS",
    "SAMPLES",
    "SCHEMA_VERSION",
    "STEPS",
    "SYNCS",
    "TABLES",
    "TELEMETRY",
    "TRANSPORTS",
    "Column",
    "Table",
]
