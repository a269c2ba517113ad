"""The GPU model of each rank: that of the first device it used."""

from __future__ import annotations

from tracekit.derive.gpu_models import models


def seen(trace, *devices):
    for device, model, is_used in devices:
        row = {"device": device, "gpu_model": model, "is_used": is_used}
        trace.rows["ranks"].append(row)
    return trace


def test_the_first_device_that_a_rank_used_counts(make_run, runs):
    traces = {
        3: seen(runs.Trace(), (0, "A100", False), (2, "H200", True), (1, "H100", True)),
        1: seen(runs.Trace(), (0, "A100", True)),
    }
    assert models(make_run(traces)) == {1: "A100", 3: "H100"}


def test_unknown_models_and_devices_are_left_out(make_run, runs):
    traces = {
        0: seen(runs.Trace(), (0, None, True)),
        1: seen(runs.Trace(), (0, "A100", None)),
        2: runs.Trace(),
    }
    assert models(make_run(traces)) == {}
