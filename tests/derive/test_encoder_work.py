"""What encoders of other modalities take: kernels launched under a span that names one (µs)."""

from __future__ import annotations

import pytest

from tracekit.derive.encoder_work import ENCODER, REST, encoder_totals, encoder_work


def step(trace, span=None, *, number=1, thread=1):
    """A step with three kernels, of 10, 20 and 40 µs, launched at 0, 5 and 10 µs."""
    at = 1_000 * number
    trace.step(number, at, 1_000)
    if span:
        trace.annotation(at + 4, 3, span, thread=thread)
    for launched, dur in ((0, 10), (5, 20), (10, 40)):
        trace.kernel(at + 100 + 10 * launched, dur, launched=(at + launched, 1))
    return trace


def work(run, rank=0):
    return encoder_work(run, rank).collect().rows()


def test_kernels_launched_under_the_span_are_the_encoders(make_run, trace):
    assert work(make_run(step(trace, "vision encoder"))) == [(1, 1, 20_000, 50_000)]


@pytest.mark.parametrize(
    "span", ["image_encoder", "AudioEncoder", "video tower", "SigLIPVision", "ViT", "clip_tower"]
)
def test_names_of_encoders(make_run, trace, span):
    assert work(make_run(step(trace, span)))[0][1:3] == (1, 20_000)


@pytest.mark.parametrize("span", ["forward", "text encoder", "clip_grad_norm_", "subdivision"])
def test_names_that_are_none(make_run, trace, span):
    assert work(make_run(step(trace, span))) == [(1, 0, 0, 70_000)]


def test_modules_are_spans_and_files_are_none(make_run, trace):
    step(trace).add("python_frames", 1_004, 3, name="nn.Module: VisionTransformer_0", thread=1)
    trace.add("python_frames", 1_000, 30, name="train_images.py(3): main", thread=1)
    assert work(make_run(trace)) == [(1, 1, 20_000, 50_000)]


def test_spans_inside_each_other_count_once(make_run, trace):
    step(trace, "vision encoder").annotation(1_005, 1, "vision layer")
    assert work(make_run(trace)) == [(1, 1, 20_000, 50_000)]


def test_a_span_on_another_thread_or_on_the_device_holds_none(make_run, trace):
    step(trace, "vision encoder", thread=2)
    trace.add("annotations", 1_100, 900, name="vision encoder", device=0, stream=7)
    assert work(make_run(trace)) == [(1, 0, 0, 70_000)]


def test_kernels_without_a_launch_and_communication_are_none(make_run, trace):
    step(trace, "vision encoder").kernel(1_500, 7).collective(1_600, 9, launched=(1_005.5, 1))
    assert work(make_run(trace)) == [(1, 1, 20_000, 57_000)]


def test_totals_of_averaged_steps_of_the_ranks_with_an_encoder(make_run, runs):
    traces = {3: runs.Trace(), 8: runs.Trace()}
    for number in range(1, 5):
        step(traces[3], "vision encoder", number=number)
        step(traces[8], number=number)
    assert encoder_totals(make_run(traces)).rows() == [
        (3, 0, number, name, total_ns)
        for number in (2, 3)
        for name, total_ns in ((ENCODER, 20_000), (REST, 50_000))
    ]


def test_a_run_without_encoders_or_without_events_has_no_totals(make_run, trace, runs):
    assert encoder_totals(make_run(step(trace))).is_empty()
    assert encoder_totals(make_run(runs.Trace())).is_empty()
    assert encoder_totals(make_run(runs.Trace().step(1, 0, 10).op(0, 5))).is_empty()
