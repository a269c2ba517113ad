"""Operations of pipeline workers as one Parquet table: the layout of the StragglerAnalysis traces.

One row an operation, with its data-parallel rank, stage, step, type, start and duration in seconds
since the start of the step (ByteDance-Seed/StragglerAnalysis, arXiv 2505.05713).
"""

from __future__ import annotations

from functools import cache, reduce
from hashlib import sha256
from itertools import pairwise
from math import gcd
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import tracekit.schema
from tracekit.collectors import Collector, Options, Peek, RankFile
from tracekit.errors import InputError
from tracekit.schema import OPS
from tracekit.store import Capture, SourceIdentity, path_text, write_table

MAGIC = b"PAR1"
NEEDED = ("dp_rank", "stage", "step", "optype", "start_ts", "duration")
"""Without these a Parquet file is not of this kind."""
ALSO = ("rank", "seq_id", "mc", "gmc", "mb_id")
"""What the layout holds besides. Rank and sequence are counted where a file leaves them out."""
SECOND_NS = 1e9
LONGEST_S = 4e9
"""A start or a duration beyond it is no time; twice of it still fits into 64 bits of ns."""


def sniff(path: Path) -> bool:
    """Whether it is a Parquet file with the columns of the layout; only its footer is read."""
    try:
        return _is_parquet(path) and set(NEEDED) <= set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return False


def why_not(path: Path) -> str | None:
    """What a Parquet file lacks of the layout, None of other files."""
    try:
        if not _is_parquet(path):
            return None
        absent = sorted(set(NEEDED) - set(pq.read_schema(path).names))
    except OSError:
        return None
    except pa.ArrowException:
        return "a Parquet file that is damaged or cut off: copy it again"
    return f"a Parquet file without {', '.join(absent)}: pipeline operations have these columns"


def peek(path: Path) -> Peek:
    """The workers in the file. Of ranks that share a worker's work one is recorded.

    Raises:
        InputError: the file is damaged, or a rank is no number.
    """
    ranks = _read(path).select("rank").unique().collect()["rank"].sort().to_list()
    if not ranks or ranks[0] is None or ranks[0] < 0:
        raise InputError(
            f"{path}: column rank: must be numbers from 0 on, of at least one operation"
        )
    apart = reduce(gcd, (b - a for a, b in pairwise(ranks)), 0) or 1
    stat = path.stat()
    return Peek(
        ranks=tuple(ranks),
        are_all=True,
        world_size=ranks[-1] + apart,
        run_key=path.stem,
        digest=sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest(),
    )


def convert(file: RankFile, folder: Path, options: Options) -> Capture:
    """Write the operations of one worker.

    Raises:
        InputError: the file is damaged, or an operation has no start, a negative duration, or no
            type.
    """
    rows = _read(file.path).filter(pl.col("rank") == file.rank).collect()
    _check(file.path, rows)
    ops = rows.select(
        (pl.col("start_ts").cast(pl.Float64) * SECOND_NS).round().cast(pl.Int64).alias("start_ns"),
        # in the type of the file: what published results were computed from
        ((pl.col("start_ts") + pl.col("duration")).cast(pl.Float64) * SECOND_NS)
        .round()
        .cast(pl.Int64)
        .alias("end_ns"),
        (pl.col("duration").cast(pl.Float64) * SECOND_NS).round().cast(pl.Int64).alias("dur_ns"),
        "step",
        pl.col("dp_rank").alias("dp"),
        "stage",
        pl.col("optype").alias("type"),
        pl.col("seq_id").alias("sequence"),
        _number_or_null("mc").alias("chunk"),
        _number_or_null("gmc").alias("model_chunk"),
        _number_or_null("mb_id").alias("micro_batch"),
    ).cast(OPS.schema)
    write_table(folder, OPS.name, file.rank, ops.sort("step", "start_ns", "sequence", "type"))
    stat = file.path.stat()
    return Capture(
        rank=file.rank,
        rank_source=file.rank_source,
        source=SourceIdentity(
            path=path_text(file.path), size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns
        ),
        collector=COLLECTOR.id,
        code=code_version(),
        epoch_ns=options.epoch_ns,
        world_size=file.world_size,
        is_clock_base_known=False,
        n_events=ops.height,
        n_bytes=stat.st_size // max(1, _n_ranks(file.path)),
        n_rows={OPS.name: ops.height},
    )


def _read(path: Path) -> pl.LazyFrame:
    """Rows of the file, with every column of the layout."""
    try:
        schema = pl.scan_parquet(path).collect_schema()
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: a damaged Parquet file: {error}") from error
    have = schema.names()
    for name in (*NEEDED, *ALSO):
        if name != "optype" and name in have and not _is_number(schema[name]):
            raise InputError(
                f"{path}: column {name}: must be numbers, is {schema[name]}",
                hint="Times are in seconds; ranks, stages, steps and sequences are whole numbers.",
            )
    rows = pl.scan_parquet(path).with_columns(pl.col("optype").cast(pl.String))
    absent = [name for name in ALSO if name not in have]
    n_stages = pl.col("stage").cast(pl.Int64).max() + 1
    made = {
        "rank": pl.col("dp_rank").cast(pl.Int64) * n_stages + pl.col("stage").cast(pl.Int64),
        "seq_id": pl.col("start_ts").rank("ordinal").over("dp_rank", "stage", "step", "optype") - 1,
    }
    nothing = pl.lit(None, dtype=pl.Int64)
    rows = rows.with_columns(made.get(name, nothing).alias(name) for name in absent)
    return rows.with_columns(pl.col("rank").cast(pl.Int64)).select(*NEEDED, *ALSO)


def _is_number(kind: pl.DataType) -> bool:
    return kind.is_numeric() or kind == pl.Null


def _number_or_null(name: str) -> pl.Expr:
    """A number, null where the layout writes -1 for "has none"."""
    number = pl.col(name).cast(pl.Int64)
    return pl.when(number >= 0).then(number)


def _check(path: Path, rows: pl.DataFrame) -> None:
    wrong = {
        "no start": ~_is_time("start_ts"),
        "no duration": ~_is_time("duration"),
        "a negative duration": pl.col("duration") < 0,
        "no type": pl.col("optype").is_null(),
        "no step, stage or data-parallel rank": pl.any_horizontal(
            pl.col("step", "stage", "dp_rank").is_null()
        ),
    }
    counts = rows.select(test.sum().alias(why) for why, test in wrong.items()).row(0, named=True)
    found = [f"{n} with {why}" for why, n in counts.items() if n]
    if found:
        raise InputError(
            f"{path}: {rows.height} operations, of them {', '.join(found)}",
            hint="Each row needs start_ts and duration (seconds), optype, step, stage, dp_rank.",
        )


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _is_time(name: str) -> pl.Expr:
    """Whether a time is there, and finite."""
    seconds = pl.col(name).cast(pl.Float64)
    return (seconds.is_finite() & (seconds.abs() <= LONGEST_S)).fill_null(value=False)


@cache
def _n_ranks(path: Path) -> int:
    return int(_read(path).select(pl.col("rank").n_unique()).collect().item())


@cache
def code_version() -> str:
    """What the rows rest on: this module and the tables."""
    digest = sha256()
    for module in (Path(__file__), Path(tracekit.schema.__file__).with_name("ops.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()


COLLECTOR = Collector(
    id="pipeline-ops",
    title="Operations of pipeline workers (Parquet, as StragglerAnalysis publishes them)",
    produces=(OPS,),
    sniff=sniff,
    peek=peek,
    convert=convert,
    code=code_version,
    why_not=why_not,
)
