"""The table of telemetry, from a file that the sampler wrote."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import msgspec
import polars as pl

from tracekit.collectors.telemetry.samples import is_wanted
from tracekit.schema.telemetry import TELEMETRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)
_N_ROWS = 1 << 17
"""Rows that are Python objects at a time: a full file holds millions."""


# With these, no sum of times is too large for a column.
_Time = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Span = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_Offset = Annotated[int, msgspec.Meta(ge=-(1 << 60), le=1 << 60)]


class _Line(msgspec.Struct):
    """A line of the file; only samples have values."""

    kind: str
    source: str = ""
    device: str | None = None
    part: str | None = None
    at_ns: _Time = 0
    dur_ns: _Span = 0
    values: dict[str, float | tuple[float, _Offset, _Offset]] = {}


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
        Columns of TELEMETRY, sorted by end, device (first the host), metric and part. Lines that
        are damaged are left out, and counted in the log.
    """
    rows = _rows(path, epoch_ns, devices, with_host=with_host)
    frames = [TELEMETRY.empty()]
    while batch := list(islice(rows, _N_ROWS)):
        frames.append(pl.DataFrame(batch, schema=TELEMETRY.schema, orient="row"))
    return pl.concat(frames).sort("end_ns", "device_uuid", "metric", "part", maintain_order=True)


def _rows(
    path: Path, epoch_ns: int, devices: Sequence[str] | None, *, with_host: bool
) -> Iterator[tuple[int, int, str | None, str | None, str, float, str]]:
    """The samples of a file in its order, one tuple a row."""
    for line in _lines(path):
        is_kept = with_host if line.device is None else is_wanted(line.device, devices)
        if not is_kept:
            continue
        at_ns = line.at_ns - epoch_ns
        for metric, value in line.values.items():
            stamped = value if isinstance(value, tuple) else (value, -line.dur_ns, 0)
            number, start_ns, end_ns = stamped
            times = (at_ns + start_ns, at_ns + end_ns)
            yield (*times, line.device, line.part, metric, float(number), line.source)


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
