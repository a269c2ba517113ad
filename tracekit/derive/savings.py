"""What a saving is worth: time off the mean step, its share of GPU time, GPU-hours a day."""

from __future__ import annotations

from tracekit.findings import Range, Saving

HOURS_PER_DAY = 24


def saving(low_ns: float, high_ns: float, step_ns: float, n_gpus: int, assumes: str) -> Saving:
    """A saving of `low_ns` to `high_ns` off a mean step of `step_ns`, on all GPUs of the run.

    The low end is never below 0, the high end never below the low one nor above the step.
    """
    high_ns = min(max(high_ns, 0.0), step_ns)
    low_ns = min(max(low_ns, 0.0), high_ns)
    low_share, high_share = low_ns / step_ns, high_ns / step_ns
    return Saving(
        per_step_ns=Range(low_ns, high_ns),
        share=low_share,
        share_high=high_share,
        gpu_hours_per_day=Range(
            low_share * n_gpus * HOURS_PER_DAY, high_share * n_gpus * HOURS_PER_DAY
        ),
        assumes=assumes,
    )
