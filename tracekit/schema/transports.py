"""One row per connection of a rank: channel, peer and direction, and by what it goes."""

from __future__ import annotations

from tracekit.schema.table import FLAG, I64, TEXT, Column, Table

TRANSPORTS = Table(
    "transports",
    "connection of a rank in a communicator, from NCCL's log",
    (
        Column("host", TEXT, "", "host of the process"),
        Column("pid", I64, "", "process"),
        Column("communicator", TEXT, "", "its address in the process; null when not known"),
        Column("communicator_rank", I64, "", "the rank's number inside it"),
        Column("peer", I64, "", "the other end's number inside it; null in trees of the network"),
        Column("channel", I64, "", "channel"),
        Column("is_message", FLAG, "", "whether it is for messages, not for collectives"),
        Column("direction", TEXT, "", "send or receive"),
        Column("transport", TEXT, "", "P2P, SHM, NET, COLLNET"),
        Column("network", TEXT, "", "of NET: IB, Socket, AWS Libfabric …"),
        Column("network_device", TEXT, "", "of NET: number of the adapter"),
        Column("is_gpu_direct", FLAG, "", "of NET: whether the adapter reads the GPU's memory"),
        Column("via", TEXT, "", "as recorded: NET/IB/1/GDRDMA"),
    ),
)
