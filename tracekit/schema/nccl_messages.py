"""One row per thing that NCCL said once or more often in a rank's process."""

from __future__ import annotations

from tracekit.schema.table import I64, TEXT, Column, Table

NCCL_MESSAGES = Table(
    "nccl_messages",
    "kind and text of what NCCL's log says in a process",
    (
        Column("host", TEXT, "", "host of the process"),
        Column("pid", I64, "", "process"),
        Column("kind", TEXT, "", "environment, warning, network, peer, tuning, ring, tree"),
        Column(
            "name", TEXT, "", "variable, source line of a warning, network, or channel of a ring"
        ),
        Column("text", TEXT, "", "value of the variable, or what was said"),
        Column("n_times", I64, "", "how often"),
    ),
)
