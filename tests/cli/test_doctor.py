"""`tracekit doctor`: what is printed, for people and for programs, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tracekit.cli import main
from tracekit.collectors import preflight
from tracekit.collectors.preflight import Answer, Group, State, checks

NOTE = Answer(Group.SET, State.NOTE, "NCCL_DEBUG is not set.", "NCCL_DEBUG=INFO")
PROBLEM = Answer(Group.CONFLICT, State.PROBLEM, "ncu holds the counters.", "End ncu")
FINE = Answer(Group.RECORD, State.OK, "torch is 2.13.0.")


def doctor(*arguments):
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


@pytest.fixture
def answered(monkeypatch):
    """Let the checks answer so."""

    def answer(**found):
        monkeypatch.setattr(preflight, "answers", lambda _machine: found)

    return answer


def test_answers_stand_in_groups_with_their_fix_below(answered):
    answered(b=(NOTE, FINE), a=(PROBLEM,))
    assert doctor().stdout == (
        "Can record:\n"
        "  ok       torch is 2.13.0.\n"
        "Conflicts:\n"
        "  problem  ncu holds the counters.\n"
        "           Fix: End ncu\n"
        "Set these:\n"
        "  note     NCCL_DEBUG is not set.\n"
        "           Fix: NCCL_DEBUG=INFO\n"
    )


def test_notes_prevent_nothing_and_a_problem_ends_with_1(answered):
    answered(a=(NOTE, FINE))
    assert doctor().exit_code == 0
    answered(a=(NOTE, PROBLEM, FINE))
    assert doctor().exit_code == 1


def test_json_holds_the_same(answered):
    answered(b=(NOTE,), a=(PROBLEM,))
    done = doctor("--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "can_record": False,
        "answers": [
            {
                "check": "b",
                "group": "set these",
                "state": "note",
                "text": "NCCL_DEBUG is not set.",
                "fix": "NCCL_DEBUG=INFO",
            },
            {
                "check": "a",
                "group": "conflicts",
                "state": "problem",
                "text": "ncu holds the counters.",
                "fix": "End ncu",
            },
        ],
    }


def test_it_runs_on_this_machine_and_looks_at_the_folder(tmp_path):
    done = doctor(tmp_path, "--json")
    said = json.loads(done.stdout)
    assert {each["check"] for each in said["answers"]} == set(checks())
    assert f"{tmp_path} can be written." in [each["text"] for each in said["answers"]]
    assert said["can_record"] == (done.exit_code == 0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_one_ends_with_1(tmp_path):
    (tmp_path / "runs").write_text("a file", "utf-8")
    done = doctor(tmp_path / "runs")
    assert done.exit_code == 1
    assert f"problem  {tmp_path / 'runs'} is a file, where a folder is needed." in done.stdout


def test_it_loads_no_torch_itself():
    code = (
        "import sys; from tracekit.cli import main; "
        "main(['doctor'], standalone_mode=False); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
