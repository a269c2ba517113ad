"""Checks are found by being there, and one that fails hides no other."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tracekit.collectors import preflight
from tracekit.collectors.preflight import Check, Machine, State, answers, checks
from tracekit.collectors.preflight._programs import Silent, output, said_by_python

FOLDER = Path(preflight.__file__).parent


def test_each_module_is_a_check():
    names = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")}
    assert set(checks()) == {name.replace("_", "-") for name in names}


def test_a_check_that_fails_says_so_and_the_others_answer(monkeypatch, fake):
    def broken(_machine):
        raise RuntimeError("no such thing")

    both = {"a": Check(id="a", look=broken), "run-folder": checks()["run-folder"]}
    monkeypatch.setattr(preflight, "checks", lambda: both)
    found = answers(replace(fake.machine, run_folder=fake.folder))
    (failed,) = found["a"]
    assert failed.state is State.NOTE
    assert failed.text == "The check a itself failed: RuntimeError: no such thing."
    assert len(found["run-folder"]) == 3


def test_a_machine_without_any_file_is_no_reason_to_raise(tmp_path):
    nothing = tmp_path / "nothing"
    machine = Machine(
        environment={},
        run_folder=nothing / "run",
        python=str(nothing / "python"),
        proc=nothing,
        sysfs=nothing,
        dev=nothing,
    )
    assert set(answers(machine)) == set(checks())


def test_this_machine_answers_every_check_without_one_that_fails(tmp_path):
    found = answers(Machine(environment=dict(os.environ), run_folder=tmp_path))
    texts = [each.text for several in found.values() for each in several]
    assert not [text for text in texts if "itself failed" in text]
    assert any(text.startswith("torch is 2.") for text in texts)
    assert "enable_cuda_sync_events is known: it records which stream waits for which." in texts
    assert "psutil samples the processes of the host." in texts


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo out; echo broken >&2; exit 3", "broken"),
        ("exit 3", "it ended with 3"),
        ("exec sleep 5", "no answer within 0 s"),
    ],
)
def test_a_program_that_gives_no_answer_says_why(fake, script, why):
    fake.program("tool", script)
    fake.set(PATH=f"{fake.folder / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(Silent, match=why):
        output(fake.machine, "tool", timeout_s=0.3)


def test_a_program_that_is_not_there_or_prints_no_json_says_why(fake):
    with pytest.raises(Silent, match="tool is not installed"):
        output(fake.machine, "tool")
    fake.program("python", "echo hello")
    with pytest.raises(Silent, match="it printed no answer"):
        said_by_python(fake.machine, "", 5)
