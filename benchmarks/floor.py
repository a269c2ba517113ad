"""Conversion of one gzipped trace against its floor: unpack, parse lazily, write the same Parquet.

The floor turns no event into anything: the tables that it writes are those of our run, and reading
them is not counted. Both are whole commands, with the start of their interpreter.

Run:
    python -m benchmarks.floor TRACES --large 500 --huge 2000
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from benchmarks.inputs import Inputs, main
from benchmarks.measure import TRACEKIT, Measured, measured, printed
from benchmarks.table import Row, at_most, bound, is_installed, mb, seconds
from tracekit.store import open_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TITLE = "Conversion of one rank, .json.gz → Parquet"
SKIPPED = "skipped: pip install pysimdjson"
MOST_FLOORS = 2.5
LEAST_MB_PER_CPU_S = 80
MOST_MB = 700
_FLOOR = """
import json, sys, time
from pathlib import Path
import pyarrow.parquet as pq
import simdjson
from isal import igzip

source, run, out = sys.argv[1:]
start_s = time.process_time()
tables = []
for path in sorted(Path(run).glob("*/rank=*.parquet")):
    with pq.ParquetFile(path) as file:
        texts = [field.name for field in file.schema_arrow if "string" in str(field.type)]
        tables.append((file.metadata.row_group(0).num_rows, texts, file.read()))
at_s = [time.process_time()]
with igzip.open(source) as file:
    data = file.read()
at_s.append(time.process_time())
document = simdjson.Parser().parse(data)
n_events = len(document["traceEvents"])
at_s.append(time.process_time())
for n_rows, texts, table in tables:
    pq.write_table(table, out, compression="zstd", row_group_size=n_rows, use_dictionary=texts)
at_s.append(time.process_time())
print(json.dumps([start_s, *(after - before for before, after in zip(at_s, at_s[1:]))]))
"""


def rows(inputs: Inputs) -> Iterator[Row]:
    """CPU against the floor, rate and memory of the large trace; rate and memory of the huge."""
    run = inputs.folder / "large"
    it, n_bytes = _converted(inputs.large(), run)
    yield _against_floor(inputs.large(), run, it, n_bytes)
    yield from _plain(it, n_bytes)
    yield from _plain(*_converted(inputs.huge(), inputs.folder / "huge"))


def _converted(path: Path, run: Path) -> tuple[Measured, int]:
    """The command measured, and the bytes of JSON it read."""
    it = measured([*TRACEKIT, "convert", "--quiet", "--engine", "local:1", str(path), str(run)])
    return it, open_run(run).manifest.captures[0].n_bytes


def _against_floor(path: Path, run: Path, it: Measured, n_bytes: int) -> Row:
    what = f"{mb(n_bytes)} of JSON: CPU, as a multiple of the floor"
    if not is_installed("simdjson"):
        return Row(what, seconds(it.cpu_s), SKIPPED)
    command = [sys.executable, "-c", _FLOOR, str(path), str(run), str(run.with_suffix(".floor"))]
    parts_s: list[float] = json.loads(printed(command))
    names = ("start", "unpack", "parse", "write")
    shown = " + ".join(f"{name} {part_s:.2f}" for name, part_s in zip(names, parts_s, strict=True))
    peer = f"{seconds(sum(parts_s))}: {shown}"
    return Row(what, seconds(it.cpu_s), peer, *at_most(it.cpu_s / sum(parts_s), MOST_FLOORS))


def _plain(it: Measured, n_bytes: int) -> Iterator[Row]:
    rate = n_bytes / 1e6 / it.cpu_s
    what = f"{mb(n_bytes)} of JSON"
    target = bound(rate, "MB", least=LEAST_MB_PER_CPU_S)
    yield Row(f"{what}: JSON per CPU second", f"{rate:,.0f} MB", target=target)
    target = bound(it.peak_bytes / 1e6, "MB", most=MOST_MB)
    yield Row(f"{what}: memory", mb(it.peak_bytes), target=target)


if __name__ == "__main__":
    main(__doc__, {TITLE: rows})
