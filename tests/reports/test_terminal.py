"""The terminal summary: one screen, plain when piped, harmless whatever the names are."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tracekit.findings import Severity
from tracekit.reports.terminal import plain, summary


def printed(result, width=80, **options):
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(summary(result, width=width))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("name", ["straggler", "healthy", "single", "hostile", "large"])
def test_a_summary_fits_on_one_screen(request, name, width):
    lines = printed(request.getfixturevalue(name), width).splitlines()
    assert len(lines) <= 30
    assert all(len(line) <= width for line in lines)


def test_the_fullest_summary_fits_on_one_screen(straggler):
    full = replace(
        straggler,
        headline=("A long sentence about one rank. " * 9,) * 3,
        findings=tuple(replace(straggler.findings[-1], subject=str(i)) for i in range(30)),
        quality=tuple(replace(straggler.quality[0], check=f"check {i}") for i in range(9)),
    )
    text = printed(full)
    assert len(text.splitlines()) <= 30
    assert "26 more findings" in text
    assert "6 more warnings" in text  # 9 checks and the detector that failed; 4 are said


def test_sentences_and_warnings_are_said_in_full(straggler):
    cure = "Set num_workers of the data loader to the number of cores over ranks. " * 3 + "Done."
    detail = "the launch of these kernels is not in the file, " * 4 + "so look at the host"
    result = replace(
        straggler,
        headline=(*straggler.headline[:2], cure),
        quality=(replace(straggler.quality[0], detail=detail),),
    )
    text = " ".join(printed(result).split())
    assert cure in text
    assert f"! Unlinked kernels: {detail}" in text


def test_an_option_in_a_sentence_stays_on_one_line(straggler):
    source = replace(straggler.source, other_runs=("a",))
    for width in range(40, 70):
        assert "--run" in printed(replace(straggler, source=source), width)


@pytest.mark.parametrize("check", ["missing ranks", "no device events"])
def test_what_a_notice_says_is_not_said_again_as_a_remark(single, straggler, check):
    remark = replace(straggler.quality[0], check=check)
    assert f"{check}:" not in printed(replace(single, quality=(remark,)))
    assert f"{check}:" in printed(replace(straggler, quality=(remark,)))


def test_facts_read_as_words(straggler):
    assert "ranks 8 of 8 analysed" in printed(straggler)
    unaligned = replace(straggler, run=replace(straggler.run, clock_error_ns=None))
    assert "clocks not aligned" in printed(unaligned)
    assert "clock error" not in printed(unaligned)


def test_a_warning_that_several_ranks_share_is_said_once(straggler):
    remarks = tuple(replace(straggler.quality[0], rank=rank) for rank in range(3))
    assert printed(replace(straggler, quality=remarks)).count("Unlinked kernels") == 1


def test_a_piped_summary_has_no_colour_codes(straggler):
    assert "\x1b" not in printed(straggler)
    assert "\x1b[" in printed(straggler, force_terminal=True, color_system="standard")


def test_names_cannot_command_the_terminal(hostile):
    text = printed(hostile, force_terminal=False)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold red]x[/]" in text


def test_the_bar_of_the_mean_step_fills_the_line(straggler):
    bar = next(line for line in printed(straggler).splitlines() if line.startswith("CCCC"))
    # Of 80 columns: 60 % compute, 10 % overlapped, 17.5 % waiting, 5 % transfer, 7.5 % idle.
    assert {letter: bar.count(letter) for letter in "Cowt."} == {
        "C": 48,
        "o": 8,
        "w": 14,
        "t": 4,
        ".": 6,
    }


def test_findings_show_severity_cause_ranks_and_saving(straggler):
    row = next(line for line in printed(straggler, 120).splitlines() if "arrives last" in line)
    assert row.split()[0] == "Critical"
    assert "input-pipeline" in row
    assert row.endswith("20 ms")


def test_counts_and_warnings_are_shown(straggler):
    text = printed(straggler)
    assert "1 checked and fine · 1 not checked for want of data · 1 failed" in text
    assert "! Unlinked kernels: Their launch is not in the file." in text


def test_remarks_without_weight_are_left_to_the_report(straggler):
    info = tuple(replace(remark, severity=Severity.INFO) for remark in straggler.quality)
    assert "Unlinked" not in printed(replace(straggler, quality=info))


def test_a_healthy_run_reads_as_healthy(healthy):
    assert printed(healthy).startswith("Healthy: Nothing found that is worth fixing")


def test_plain_text_is_cut_with_an_ellipsis():
    assert plain("abcdef", 4) == "abc…"
    assert plain("a\nb\tc", 9) == "a\ufffdb\ufffdc"
