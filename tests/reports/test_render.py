"""The page as a document: one file, no network, nothing executed that came from a trace."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tracekit.reports.render import report_html, write_report

MAX_BYTES = 6_000_000


@pytest.fixture(params=["straggler", "healthy", "single", "hostile", "large", "alone"])
def page(request):
    return report_html(request.getfixturevalue(request.param))


def attributes(page):
    """Names of all attributes, as a browser's parser sees them."""
    names = set()
    parser = HTMLParser()
    parser.handle_starttag = lambda _tag, attrs: names.update(name for name, _ in attrs)
    parser.feed(without_scripts(page))
    return names


def without_scripts(page):
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_a_page_is_at_most_six_megabytes(page):
    assert len(page.encode()) <= MAX_BYTES


def test_a_page_loads_nothing(page):
    markup = without_scripts(page)
    assert "http://" not in markup
    assert "https://" not in markup
    assert re.findall(r"<(?:iframe|img|object|embed|base)\b", markup) == []
    assert re.findall(r"<script[^>]*\bsrc", page) == []
    assert re.findall(r"<link[^>]*>", markup) == ['<link rel="icon" href="data:,">']
    assert "@import" not in markup
    assert "url(" not in markup


def test_the_policy_admits_no_network_and_only_the_scripts_of_the_page(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src" not in policy
    admitted = set(re.findall(r"'sha256-([^']+)'", policy))
    run = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in run}
    assert len(run) == 3
    assert digests <= admitted


def test_every_script_of_a_hostile_page_is_ours(hostile):
    page = report_html(hostile)
    opened = re.findall(r"<script[^>]*>", page)
    assert sorted(opened) == sorted(
        [
            "<script>",
            "<script>",
            "<script>",
            '<script type="application/json" id="figure-bars">',
            '<script type="application/json" id="figure-heat">',
            '<script type="application/json" id="numbers">',
            '<script type="text/plain" id="plotly">',
        ]
    )
    assert page.count("</script>") == len(opened)
    assert attributes(page) & {"onerror", "onload", "srcdoc", "src"} == set()
    assert "{{ 7 * 7 }}" in page


def test_elements_have_unique_ids(page):
    ids = re.findall(r'\sid="([^"]+)"', without_scripts(page))
    assert len(ids) == len(set(ids))


def test_every_link_of_the_page_has_a_target(page):
    markup = without_scripts(page)
    ids = set(re.findall(r'\sid="([^"]+)"', markup))
    links = re.findall(r'<a [^>]*href="#([^"]+)"', markup)
    assert set(links) <= ids
    assert len(links) > markup.count("<section id=")


def test_a_page_without_charts_carries_no_chart_library(single):
    assert len(report_html(single)) < 100_000


def test_the_first_screen_says_cause_saving_cure_and_facts(straggler):
    page = report_html(straggler)
    screen = page[page.index('class="verdict critical"') : page.index('id="what-to-fix"')]
    for sentence in straggler.headline:
        assert sentence in screen
    assert ">8 of 8 analysed<" in screen
    assert ">8 \u00d7 NVIDIA H100 80GB HBM3<" in screen
    assert ">2 of 4<" in screen
    assert ">12 µs<" in screen
    # 70 + 10 + 20 ms make up the 100 ms step; 0.875 times 0.8 = 0.7.
    assert "Compute 70 ms" in screen
    assert "Imbalance 10 ms" in screen
    assert "rest 20 ms" in screen
    assert "Load balance 87.5 % \u00d7 communication efficiency 80.0 % = 70.0 %" in screen
    assert "Communication efficiency is max compute / step" in screen


def test_the_widths_of_the_efficiency_bar_are_the_shares_of_the_step(straggler):
    page = report_html(straggler)
    assert re.findall(r'segment-\d" style="flex-grow: ([\d.]+)"', page) == [
        "0.700000",
        "0.100000",
        "0.200000",
    ]


def test_a_missing_efficiency_is_explained(single):
    page = report_html(single)
    assert "Not available. It needs step windows, and no step was found" in page


def test_a_healthy_run_reads_as_healthy_and_lists_what_was_checked(healthy):
    page = report_html(healthy)
    assert '<span class="badge clear">Healthy</span>' in page
    assert "Nothing found that is worth fixing: 1 check within limits." in page
    assert "All links run at the same speed" in page
    assert "Detectors that failed" not in page


def test_a_run_in_which_nothing_could_be_checked_is_not_called_healthy(single):
    page = report_html(single)
    assert "Not enough data" in page
    assert "Healthy" not in page
    assert "3 ranks of 4 missing (1\u20133)" in page
    assert "the training thread stands for the device" in page


def test_the_report_is_written_whole(tmp_path, healthy):
    path = tmp_path / "report.html"
    write_report(healthy, path)
    assert path.read_text("utf-8") == report_html(healthy)
    assert list(tmp_path.iterdir()) == [path]


def test_a_lone_surrogate_does_not_stop_the_report(tmp_path, healthy):
    path = tmp_path / "report.html"
    write_report(replace(healthy, headline=("kernel \ud800 is slow",), created="\ud800"), path)
    assert "kernel \ufffd is slow" in path.read_text("utf-8")
