"""What a replay says on a terminal."""

from __future__ import annotations

from tracekit.replays import Slowdowns
from tracekit.reports.replay_text import straggling


def test_a_job_that_nothing_slows_is_not_said_to_waste_less_than_nothing():
    found = Slowdowns(
        slowdown=0.8,
        by_type={},
        by_dp={},
        by_stage={"0": 1.0},
        by_worker={},
        worker_share=None,
        last_stage_share=None,
        waste=-0.25,
        replay_error=0.0,
    )
    assert straggling(found) == (
        "Stragglers do not slow the step: with all work alike it would take 25.0 % more."
    )
