"""One row per communicator of a rank, as NCCL's own log tells of it."""

from __future__ import annotations

from tracekit.schema.table import FLAG, I64, TEXT, Column, Table

INIT_PARTS = (
    "kernels",
    "alloc",
    "bootstrap",
    "allgathers",
    "topo",
    "graphs",
    "connections",
    "rest",
)
"""What NCCL divides the time into that it takes to make a communicator."""

COMMUNICATORS = Table(
    "communicators",
    "communicator of a rank, from NCCL's log",
    (
        Column("host", TEXT, "", "host of the process"),
        Column("pid", I64, "", "process"),
        Column("communicator", TEXT, "", "its address in the process: tells those of one apart"),
        Column("communicator_id", TEXT, "", "the same on all its ranks; null before NCCL 2.18"),
        Column("parent", TEXT, "", "address of the one it was split from; null when made anew"),
        Column("communicator_rank", I64, "", "the rank's number inside it"),
        Column("n_ranks", I64, "", "its ranks"),
        Column("n_nodes", I64, "", "nodes they lie on; null where the log does not tell"),
        Column("n_local_ranks", I64, "", "of its ranks those on this node; null likewise"),
        Column("device", I64, "", "device index as the process saw it"),
        Column("nvml_device", I64, "", "device index on the host"),
        Column("bus_id", TEXT, "", "PCI bus id of the device"),
        Column("is_complete", FLAG, "", "whether the log says that it was made"),
        Column("network", TEXT, "", "what it uses between nodes: IB, Socket, AWS Libfabric …"),
        Column("is_nvls_available", FLAG, "", "NVLink SHARP on its device; null when not said"),
        Column("n_coll_channels", I64, "", "channels of collectives; null when not said"),
        Column("n_nvls_channels", I64, "", "of NVLink SHARP; null before NCCL 2.17"),
        Column("n_p2p_channels", I64, "", "of messages"),
        Column("init_ns", I64, "ns", "time to make it; null before NCCL 2.18"),
        *(
            Column(f"{part}_ns", I64, "ns", f"of that {part}, as NCCL calls it; null likewise")
            for part in INIT_PARTS
        ),
    ),
)
