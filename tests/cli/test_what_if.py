"""`tracekit what-if`: slowdowns as JSON, and answers to one's own questions."""

from __future__ import annotations

import json
import shutil

import pytest

from tracekit.sample_traces import scenarios

KEYS = {"S", "S_t", "S_dp", "S_stage", "S_w", "M_W", "M_S", "waste", "replay_error"}


@pytest.fixture(scope="module")
def slow_device(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow-device")
    truth = scenarios()["slow-device"].build(folder, 1, 1.0)
    return folder, truth.findings[0].saving_ns


def test_the_slowdowns_as_json_and_nothing_else(slow_device, tracekit, here):
    done = tracekit("what-if", slow_device[0], "--json")
    found = json.loads(done.stdout)
    assert set(found) == KEYS
    assert found["S_dp"]["2"] == pytest.approx(found["S"], rel=0.01)
    assert found["M_S"] == pytest.approx(1)  # one stage: it is all of them
    assert list(here.iterdir()) == []


def test_a_run_folder_and_an_output_folder_will_do(slow_device, tracekit):
    tracekit("analyze", slow_device[0], "--output", "out")
    by_folder = json.loads(tracekit("what-if", "out", "--json").stdout)
    assert by_folder == json.loads(tracekit("what-if", "out/run", "--json").stdout)


def test_a_rank_made_like_its_peers_saves_what_the_simulator_says(slow_device, tracekit):
    folder, saving_ns = slow_device
    done = tracekit("what-if", folder, "--remove", "straggler:2", "--json")
    (answer,) = json.loads(done.stdout)["answers"]
    assert answer["question"] == "remove straggler:2"
    assert answer["gained_ns"] == pytest.approx(saving_ns, rel=0.02)


def test_several_questions_are_answered_each_and_together(slow_device, tracekit):
    done = tracekit(
        "what-if", slow_device[0], "--scale", "kernel:gemm=0.5", "--remove", "sync", "--json"
    )
    answers = json.loads(done.stdout)["answers"]
    assert [each["question"] for each in answers] == [
        "scale kernel:gemm=0.5",
        "remove sync",
        "all together",
    ]
    gained = [each["gained_ns"] for each in answers]
    assert max(gained[:2]) <= gained[2] <= sum(gained[:2]) * 1.01


def test_together_what_is_removed_first_makes_no_difference(slow_device, tracekit):
    asked = ["--remove", "transfer", "--remove", "straggler:2"]
    found = [
        json.loads(tracekit("what-if", slow_device[0], *each, "--json").stdout)["answers"][-1]
        for each in (asked, [*asked[2:], *asked[:2]])
    ]
    assert found[0]["question"] == "all together"
    assert found[0] == found[1]


def test_a_person_reads_the_step_its_error_and_the_path(slow_device, tracekit):
    text = tracekit("what-if", slow_device[0], "--scale", "transfer=2").stdout
    assert "replayed" in text
    assert "error 0.0 %" in text
    assert "scale transfer=2" in text
    assert "Longest path" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scale", "gemm"), "must be WORK=FACTOR"),
        (("--scale", "kernel:gemm=-1"), "must be WORK=FACTOR"),
        (("--scale", "kernel:gemm=nan"), "must be WORK=FACTOR"),
        (("--scale", "kernel:conv=2"), "no such work here"),
        (("--scale", "kernel@99=2"), "no work of rank '99' here"),
        (("--scale", "kernel:conv=2"), "kernel:gemm"),
        (("--remove", "straggler"), "Ranks here: 0, 1, 2, 3"),
        (("--remove", "sync:luck"), "Recorded were: "),
        (("--remove", "straggler:99"), "no rank '99' here"),
        (("--remove", "luck"), "not known"),
        (("--remove", "checkpoint"), "no such host work was recorded"),
    ],
)
def test_a_question_that_is_none_is_refused(slow_device, tracekit, arguments, said):
    done = tracekit("what-if", slow_device[0], *arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_what_cannot_be_replayed_is_said(tracekit, tmp_path):
    path = tmp_path / "nothing.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    path.write_text(json.dumps({"traceEvents": [event], "distributedInfo": {"rank": 0}}), "utf-8")
    done = tracekit("what-if", path)
    assert done.exit_code == 3
    assert "nothing in it can be replayed" in done.stderr
    assert "activities CPU and CUDA" in done.stderr


def test_of_several_runs_it_says_which_one_is_replayed(slow_device, tracekit, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(slow_device[0], both / "one")
    for rank in (0, 1):
        text = next(slow_device[0].glob(f"*{rank}*.json")).read_text()
        (both / f"rank{rank}.json").write_text(text.replace('"world_size": 4', '"world_size": 2'))
    done = tracekit("what-if", both, "--json")
    assert done.stderr.startswith("Replayed: ")
    assert "Beside it lie other runs: --run " in done.stderr
    assert json.loads(done.stdout)["S"] > 1
