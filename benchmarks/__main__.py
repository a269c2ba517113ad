"""Measure everything that has a target, in one run, as one Markdown table of ratios.

Run:
    python -m benchmarks                      # the embedded sample, amplified to 500 MB and 2 GB
    python -m benchmarks TRACES               # a folder of traces, a rank each; the first amplified
    python -m benchmarks TRACES --file rank0.json.gz --file other.json.gz

Each section also runs alone: `python -m benchmarks.floor`. What a peer is not installed for is
skipped and says so.
"""

from __future__ import annotations

from benchmarks import floor, peers, report, stages, startup
from benchmarks.inputs import main

SECTIONS = {each.TITLE: each.rows for each in (peers, floor, stages, startup, report)}

if __name__ == "__main__":
    main(__doc__, SECTIONS)
