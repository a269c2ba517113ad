"""Ways to decode a trace's events, in one run: what `docs/decisions.md` chooses between.

Run:
    python -m benchmarks.decoders FILE.json      # plain JSON, as export_chrome_trace writes it
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import measured

_SCHEMA = (
    "{'ph': pl.String, 'cat': pl.String, 'name': pl.String, 'ts': pl.Float64, 'dur': pl.Float64, "
    "'args': pl.Struct({'correlation': pl.Int64, 'External id': pl.Int64, 'stream': pl.Int64, "
    "'device': pl.Int64, 'bytes': pl.Int64})}"
)
TRIALS = {
    "json, a dict for each event": ("import json", "json.load(open(sys.argv[1]))"),
    "msgspec, typed structs in chunks, all columns (tracekit)": (
        "from pathlib import Path; from tracekit.collectors.chrome_trace import events as e",
        "for events in e.batches(Path(sys.argv[1]), e.Reading()): pass",
    ),
    "Polars read_ndjson, 11 columns, of a file already cut into lines": (
        "import polars as pl",
        f"pl.read_ndjson(sys.argv[1], schema={_SCHEMA}, ignore_errors=True)",
    ),
    "pyarrow.json, all columns, of a file already cut into lines": (
        "import pyarrow.json as j",
        "j.read_json(sys.argv[1], read_options=j.ReadOptions(block_size=64 << 20))",
    ),
}
"""What is imported first, which does not count, and what is measured."""


def main() -> None:
    """Print one Markdown table; the start of the interpreter and its imports is taken off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    n_bytes = path.stat().st_size
    with tempfile.TemporaryDirectory(prefix="tracekit-") as temporary:
        lines = Path(temporary) / "lines.ndjson"
        with lines.open("w") as out:
            for event in json.loads(path.read_bytes())["traceEvents"]:
                if event.get("ph") == "X" and "pid" in event and isinstance(event["pid"], int):
                    out.write(json.dumps(event) + "\n")
        print("| how | JSON per CPU second | largest process |")
        print("|---|---|---|")
        for how, (imports, code) in TRIALS.items():
            source = lines if "lines" in how else path
            print(_row(how, imports, code, source, n_bytes))


def _row(how: str, imports: str, code: str, source: Path, n_bytes: int) -> str:
    """One trial; the start of the interpreter and its imports is taken off."""
    imports = f"import sys\n{imports}\n"
    start = measured([sys.executable, "-c", imports])
    try:
        whole = measured([sys.executable, "-c", imports + code, str(source)])
    except RuntimeError as error:
        return f"| {how} | failed: {str(error).strip().splitlines()[-1][:80]} | |"
    rate = n_bytes / 1e6 / max(whole.cpu_s - start.cpu_s, 1e-3)
    return f"| {how} | {rate:,.0f} MB | {whole.peak_bytes / 1e6:,.0f} MB |"


if __name__ == "__main__":
    main()
