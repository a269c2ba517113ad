"""The section about how far the groups got, drawn from a result."""

from __future__ import annotations

from dataclasses import replace

from tests.reports.test_communication_section import words
from tracekit.reports.sections.where_the_job_stands import render
from tracekit.standstill import GroupProgress, Standstill

GROUP = GroupProgress(
    group="40 (2 ranks: 10–11)",
    description="TENSOR_MODEL_PARALLEL_GROUP",
    n_members=2,
    n_dumps=2,
    last_called=31451,
    last_ended=31442,
    behind=(10,),
    calls_behind=9,
    behind_ns=1_200_000_000,
    in_call="reduce_scatter 31443",
    n_waiting=1,
)


def page(healthy, *groups, n_groups=1, wrapped=()):
    stands = Standstill(groups=groups, n_groups=n_groups, wrapped=wrapped)
    return render(replace(healthy, standstill=stands))


def test_a_group_whose_member_is_behind(healthy):
    said = words(page(healthy, GROUP))
    assert (
        "TENSOR_MODEL_PARALLEL_GROUP reduce_scatter 31443 1 10 9 1.2 s 31451 31442 2 of 2" in said
    )


def test_rings_that_wrapped_and_groups_that_are_left_out_are_said(healthy):
    said = words(page(healthy, GROUP, n_groups=70, wrapped=tuple(range(12))))
    assert "Shown: 1 of 70 groups." in said
    assert "12 ranks wrapped (0, 1, 2, 3, 4, 5, 6, 7, …)" in said


def test_without_dumps_there_is_no_such_section(healthy):
    assert render(healthy) is None
    assert page(healthy) is None


def test_a_hostile_description_stays_text(healthy):
    assert "<script>" not in str(page(healthy, replace(GROUP, description="<script>x</script>")))
