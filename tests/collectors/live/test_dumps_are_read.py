"""Dumps of real gloo ranks, as pickles and as JSON: a healthy job is no hang, a missing call is."""

from __future__ import annotations

import pytest

import tracekit
from tracekit.findings import Cause, Status

pytestmark = pytest.mark.torch


@pytest.fixture
def hang_of(torchrun, jobs, tmp_path):
    """The finding about a hang, from the pickles and from the JSON of one job."""

    def found(*arguments):
        torchrun(
            tmp_path, *arguments, script=jobs.with_name("dumping.py"), TORCH_FR_BUFFER_SIZE="100"
        )
        for kind in ("pickle", "json"):
            result = tracekit.analyze(tmp_path / kind, engine="local:1")
            assert not [f for f in result.findings if f.status is Status.FAILED]
            yield next(f for f in result.findings if f.id == "collective-hang")

    return found


def test_a_job_that_goes_on_stands_not_still(hang_of):
    assert [found.status for found in hang_of()] == [Status.CLEAR, Status.CLEAR]


def test_a_call_that_one_rank_never_makes(hang_of):
    for found in hang_of("ahead"):
        assert (found.ranks, found.cause) == ((1,), Cause.MISSING_CALL)
        assert found.scope.victims == (0,)
