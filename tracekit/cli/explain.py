"""Explain what a detector measures, its formula, limits and advice."""

from __future__ import annotations

import difflib

import click

from tracekit.detectors import detectors
from tracekit.docgen import explanation
from tracekit.errors import UsageError

TAKES = ()

LEAST_SIMILARITY = 0.6
"""Of a name and what was typed: a typing mistake is above, another word below."""


@click.command(epilog="Example: tracekit explain straggler-rank")
@click.argument("detector_id", metavar="DETECTOR")
def command(detector_id: str) -> None:
    """Explain DETECTOR: what it measures, its formula, limits with reasons, and advice."""
    known = detectors()
    if detector_id not in known:
        nearest = difflib.get_close_matches(detector_id, known, n=1, cutoff=LEAST_SIMILARITY)
        also = f"; the nearest is {nearest[0]!r}" if nearest else ""
        raise UsageError(
            f"no detector is named {detector_id!r}{also}",
            hint=f"The detectors are: {', '.join(sorted(known))}",
        )
    click.echo(explanation(known[detector_id]))
