"""The table of telemetry, from a file that the sampler wrote."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from tracekit.collectors.telemetry.samples import is_wanted
from tracekit.schema.telemetry import TELEMETRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)


class _Line(msgspec.Struct):
    """A line of the file; only samples have values."""

    kind: str
    source: str = ""
    device: str | None = None
    part: str | None = None
    at_ns: int = 0
    dur_ns: int = 0
    values: dict[str, float | tuple[float, int, int]] = {}


_DECODER = msgspec.json.Decoder(_Line)


def telemetry_rows(
    path: Path, epoch_ns: int, devices: Sequence[str] | None, *, with_host: bool
) -> pl.DataFrame:
    """The samples of a file, as the table declares them.

    Args:
        path: The file; it may have been cut anywhere by a kill.
        epoch_ns: The run's epoch, in ns since 1970.
        devices: UUIDs of devices, with or without "GPU-" before them; null for all of the file.
        with_host: Whether to keep the rows of the host.

    Returns:
        Columns of TELEMETRY, sorted by end, device, metric and part. Lines that are damaged are
        left out, and counted in the log.
    """
    columns: dict[str, list[object]] = {column.name: [] for column in TELEMETRY.columns}
    for line in _lines(path):
        is_kept = with_host if line.device is None else is_wanted(line.device, devices)
        if not is_kept:
            continue
        for metric, value in line.values.items():
            stamped = value if isinstance(value, tuple) else (value, -line.dur_ns, 0)
            number, start_ns, end_ns = stamped
            columns["start_ns"].append(line.at_ns + start_ns - epoch_ns)
            columns["end_ns"].append(line.at_ns + end_ns - epoch_ns)
            columns["device_uuid"].append(line.device)
            columns["part"].append(line.part)
            columns["metric"].append(metric)
            columns["value"].append(number)
            columns["source"].append(line.source)
    return pl.DataFrame(columns, schema=TELEMETRY.schema).sort(
        "end_ns", "device_uuid", "metric", "part", maintain_order=True
    )


def _lines(path: Path) -> Iterator[_Line]:
    """Samples of a file, in its order."""
    n_damaged = 0
    with path.open("rb") as file:
        for text in file:
            try:
                line = _DECODER.decode(text)
            except msgspec.MsgspecError:
                # What a kill cut off is no damage: nothing that was written whole is lost.
                n_damaged += text.endswith(b"\n")
                continue
            if line.kind == "sample":
                yield line
    if n_damaged:
        log.warning("%s: %d damaged lines are left out", path, n_damaged)
