"""Devices of a rank, as far as an export describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.collectors.nsys_export.places import PID_UNIT
from tracekit.schema import RANKS

if TYPE_CHECKING:
    from tracekit.collectors.nsys_export.opened import Export
    from tracekit.collectors.nsys_export.places import Place

_FACTS = {
    "id": "number",
    "uuid": "text",
    "cuDevice": "number",
    "name": "text",
    "smCount": "number",
    "totalMemory": "number",
}


def devices(export: Export, place: Place, used: set[int]) -> pl.DataFrame:
    """The devices that a rank used."""
    known = described(export, place, used)
    found = [known[device] for device in sorted(used)]
    return pl.DataFrame(
        {
            "device": sorted(used),
            "gpu_model": [row.get("name") for row in found],
            "sm_count": [row.get("smCount") for row in found],
            "memory_bytes": [row.get("totalMemory") for row in found],
            "is_used": [True] * len(found),
        },
        schema=RANKS.schema,
    )


def described(export: Export, place: Place, used: set[int]) -> dict[int, dict[str, Any]]:
    """What TARGET_INFO_GPU says of each device, by the process's number; empty where nothing.

    A process counts devices by itself: which one it means stands in TARGET_INFO_CUDA_DEVICE. Where
    that is missing, by the driver's number, else by Nsight's.
    """
    facts = list(export.all_rows("TARGET_INFO_GPU", _FACTS).iter_rows(named=True))
    by_id = {row["id"]: row for row in facts}
    by_number = {row["cuDevice"]: row for row in facts if row["cuDevice"] is not None}
    seen = export.all_rows(
        "TARGET_INFO_CUDA_DEVICE", dict.fromkeys(("gpuId", "cudaId", "pid"), "number")
    )
    pid = None if place.process is None else place.process // PID_UNIT % PID_UNIT
    own = {
        row["cudaId"]: by_id.get(row["gpuId"])
        for row in seen.iter_rows(named=True)
        if pid is None or row["pid"] == pid
    }
    return {d: own.get(d) or (by_number or by_id).get(d) or {} for d in used}
