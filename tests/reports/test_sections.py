"""Sections: found by being there, each with its order and title, and what each of them says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markupsafe import Markup

from tracekit.findings import Range, Severity, Status
from tracekit.reports.render import section_modules, shown_sections
from tracekit.reports.sections import (
    capture_quality,
    checked_and_fine,
    failed_detectors,
    method,
    not_checked,
    published,
    ranks_and_steps,
    source_files,
    what_to_fix,
    where_the_step_goes,
)
from tracekit.results import Inefficiency

ALL = ["straggler", "healthy", "single", "hostile", "large", "alone"]


def test_sections_have_unique_orders_and_titles():
    modules = section_modules()
    assert len({module.ORDER for module in modules}) == len(modules) >= 9
    assert len({module.TITLE for module in modules}) == len(modules)
    assert [module.ORDER for module in modules] == sorted(module.ORDER for module in modules)
    assert all(len(module.TITLE) <= 60 for module in modules)


@pytest.mark.parametrize("name", ALL)
def test_every_section_renders_markup_or_nothing(request, name):
    result = request.getfixturevalue(name)
    for module in section_modules():
        body = module.render(result)
        assert body is None or isinstance(body, Markup), module.__name__


def test_a_result_with_nothing_in_it_renders(single):
    ids = [section.id for section in shown_sections(single)]
    assert ids == [
        "what-to-fix",
        "where-the-step-goes",
        "capture-quality",
        "source-files",
        "method",
    ]


def test_the_finding_with_the_largest_saving_comes_first(straggler):
    body = what_to_fix.render(straggler)
    assert re.findall(r'<article[^>]* id="([^"]+)"', body) == [
        "finding/straggler-rank/rank%205",
        "finding/host-sync/item",
    ]


def test_a_finding_shows_its_figures_and_what_they_rest_on(straggler):
    body = what_to_fix.render(straggler)
    for part in (
        "<b>18 ms to 20 ms</b> per step",
        "<b>18.0 % to 20.0 %</b> of GPU time",
        "<b>34.6 to 38.4</b> GPU-hours per day",
        "Assumes: <bdi>Rank 5 loads its data as fast as the median rank.</bdi>",
        "<dt>Ranks that wait</dt><dd>0\u20134, 6\u20137</dd>",
        "<dt>Measured</dt><dd>95.0 %</dd>",
        "<dt>Limit</dt><dd>50.0 %</dd>",
        "1,234.567891 s to 1,234.667891 s from the start of the run",
        "High confidence: <bdi>Lateness is 40 ms, the clock error 12 µs.</bdi>",
        "<code>taskset -c 0-15 torchrun train.py</code>",
        '<td class="n" data-value="21000000">21 ms</td>',
    ):
        assert part in body, part


def test_beyond_forty_findings_the_rest_stand_in_a_table_and_keep_their_links(straggler):
    one = straggler.findings[-1]
    many = tuple(replace(one, subject=f"rank {i}") for i in range(45))
    body = what_to_fix.render(replace(straggler, findings=many))
    assert body.count("<article") == 40
    assert "5 more findings" in body
    assert len(re.findall(r'id="finding/straggler-rank/rank%20\d+"', body)) == 45


def test_nothing_found_is_no_good_news_where_a_detector_failed(straggler):
    kept = tuple(f for f in straggler.findings if f.status is not Status.FOUND)
    assert 'class="notice unknown"' in what_to_fix.render(replace(straggler, findings=kept))
    assert 'class="notice clear"' in what_to_fix.render(replace(straggler, findings=kept[:2]))


def test_a_finding_without_saving_or_advice_renders(straggler):
    bare = replace(
        straggler.findings[-1],
        saving=None,
        recommendation=None,
        scope=None,
        confidence=None,
        severity=None,
        cause=None,
        measured=None,
        evidence=(),
    )
    body = what_to_fix.render(replace(straggler, findings=(bare,)))
    assert "No saving is claimed." in body


def test_a_clear_finding_shows_the_measured_value_and_its_limit(straggler):
    body = checked_and_fine.render(straggler)
    assert "<td><bdi>0.3 %</bdi></td><td><bdi>5.0 %</bdi></td>" in body


def test_a_skipped_finding_says_how_to_record_what_is_missing(straggler):
    assert "tracekit record --telemetry" in not_checked.render(straggler)


def test_a_failed_detector_is_called_a_fault_of_tracekit(straggler):
    body = failed_detectors.render(straggler)
    assert "faults of tracekit" in body
    assert "ZeroDivisionError" in body


def test_the_table_of_steps_names_the_rank_with_the_longest_own_time(straggler):
    body = ranks_and_steps.render(straggler)
    # All steps last 100 ms; rank 5 waits for nobody, so its own time is 100 ms as well.
    row = re.search(r'<tr data-step="1">.*?</tr>', body)[0]
    assert re.findall(r">([^<>]+)</td>", row.replace("<bdi>", "").replace("</bdi>", "")) == [
        "1",
        "8",
        "yes",
        "100 ms",
        "100 ms",
        "100 ms",
        "100 ms",
        "5",
    ]


def test_the_heat_map_is_left_out_without_steps(single):
    assert ranks_and_steps.render(single) is None


def test_the_breakdown_table_adds_up(straggler):
    body = where_the_step_goes.render(straggler)
    row = re.search(r'<tr data-rank="5">.*?</tr>', body)[0]
    # Rank 5: 60 ms compute, 10 overlapped, 0 waiting, 5 transfer, 25 idle.
    values = [float(value) / 1e6 for value in re.findall(r'data-value="([\d.]+)"', row)[1:]]
    assert values == [100, 60, 10, 0, 5, 0, 0, 25]


def test_beyond_sixty_four_ranks_the_breakdown_says_what_is_shown(large):
    body = where_the_step_goes.render(large)
    assert "64 of 1,024 devices" in body
    table = body[body.index('data-source="mean"') :]
    assert re.findall(r'<tr data-rank="(\d+)"', table)[0] == "700"


def test_only_the_whole_trace_is_shown_where_no_step_was_found(straggler):
    body = where_the_step_goes.render(replace(straggler, breakdown=()))
    assert "no step was found" in body
    assert 'data-source="mean"' in body
    assert "Over the whole trace</summary>" not in body


def test_steps_of_which_none_is_averaged_are_all_used(straggler):
    rows = tuple(replace(row, is_averaged=False) for row in straggler.breakdown)
    assert "Mean of all recorded steps" in where_the_step_goes.render(
        replace(straggler, breakdown=rows)
    )


def test_remarks_on_the_capture_come_gravest_first(straggler):
    one = straggler.quality[0]
    remarks = (
        replace(one, severity=Severity.INFO, check="c"),
        replace(one, severity=Severity.CRITICAL, check="a"),
    )
    body = capture_quality.render(replace(straggler, quality=remarks))
    assert body.index("<bdi>a</bdi>") < body.index("<bdi>c</bdi>")


def test_a_check_of_several_ranks_is_one_row(straggler):
    one = straggler.quality[0]
    remarks = tuple(replace(one, rank=rank, count=10 + rank) for rank in (1, 2, 3))
    body = capture_quality.render(replace(straggler, quality=remarks))
    assert body.count("Unlinked kernels") == 1
    assert "1\u20133" in body
    assert "36" in body  # 11 + 12 + 13


def test_of_many_files_those_that_lost_most_are_shown(large):
    files = list(large.source.files)
    files[900] = replace(files[900], n_dropped=7, why=("cut gzip",))
    source = replace(large.source, files=tuple(files), n_dropped=7)
    body = source_files.render(replace(large, source=source))
    assert "64 of 1,024 files" in body
    assert re.findall(r'<tr data-rank="(\d+)"', body)[0] == "900"
    assert "7 dropped" in body


def test_statuses_never_mix(hostile):
    n_each = len(hostile.findings) // len(Status)
    assert what_to_fix.render(hostile).count("<article") == n_each
    for module in (checked_and_fine, not_checked, failed_detectors):
        assert module.render(hostile).count("<tr id=") == n_each


def test_a_long_run_says_which_steps_are_shown(large):
    rows = tuple(
        replace(row, step=row.step + 20 * i, dur_ns=row.dur_ns + i)
        for row in large.breakdown
        for i in range(4)
    )
    body = ranks_and_steps.render(replace(large, breakdown=rows))
    assert "Shown: the 20 slowest of 80 steps." in body
    assert "the 64 slowest of 80 steps" in body
    assert body.count("<tr data-step") == 64


def test_files_left_out_are_listed_up_to_a_limit(straggler):
    source = replace(straggler.source, others=tuple(f"old-{i}.json" for i in range(25)))
    body = source_files.render(replace(straggler, source=source))
    assert "old-19.json" in body
    assert "old-20.json" not in body
    assert "and 5 more" in body


def test_a_run_without_gpus_claims_no_gpu_hours(straggler):
    finding = straggler.findings[-1]
    saving = replace(finding.saving, gpu_hours_per_day=Range(0.0, 0.0))
    result = replace(straggler, findings=(replace(finding, saving=saving),))
    assert "GPU-hours" not in what_to_fix.render(result)


def test_published_inefficiencies_are_listed_with_what_came_of_them(healthy):
    row = Inefficiency(
        row=29, system="Zero<GNN>", arxiv="2605.29346", finding="host-sync", state=Status.CLEAR
    )
    body = published.render(replace(healthy, inefficiencies=(row,)))
    for text in ("Zero&lt;GNN&gt;", "arXiv 2605.29346", "host-sync", "clear"):
        assert text in body
    assert published.render(replace(healthy, inefficiencies=())) is None


@pytest.mark.parametrize(
    ("error_ns", "sentence"),
    [
        (12_000.0, "The clock of the worst rank may be off by 12 µs"),
        (0.0, "All ranks were timed by one clock."),
        (None, "The clocks of some ranks were not aligned"),
    ],
)
def test_the_method_says_how_far_clocks_may_be_off(straggler, error_ns, sentence):
    run = replace(straggler.run, clock_error_ns=error_ns)
    assert sentence in method.render(replace(straggler, run=run))


def test_the_method_has_no_clocks_to_align_where_one_rank_was_read(single):
    assert "One rank was read: there is no other clock" in method.render(single)
