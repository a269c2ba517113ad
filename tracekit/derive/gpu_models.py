"""The GPU model of each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered

if TYPE_CHECKING:
    from tracekit.store import Run


@remembered
def models(run: Run) -> dict[int, str]:
    """Model of the first device that each rank used; ranks of unknown ones are left out."""
    used = run.scan_all("ranks").filter(pl.col("is_used") & pl.col("gpu_model").is_not_null())
    first = used.sort("rank", "device").unique("rank", keep="first", maintain_order=True)
    return dict(first.select("rank", "gpu_model").collect().iter_rows())
