"""Trainers of frameworks that record themselves, for real."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import torch

import tracekit
from tracekit.collectors.callbacks.accelerate import AccelerateCollection
from tracekit.collectors.callbacks.batches import lengths
from tracekit.errors import UsageError

pytestmark = [pytest.mark.torch, pytest.mark.slow]
JOB = Path(__file__).with_name("frameworks.py")
FRAMEWORKS = ("hugging_face", "lightning", "accelerate")
NEVER = {"wait": 1000}


def steps_of(folder):
    """The steps that each rank wrote a line for."""
    return [
        [json.loads(line)["step"] for line in path.read_text("utf-8").splitlines()]
        for path in sorted(folder.glob("attempt=*/steps/rank=*.jsonl"))
    ]


def check(folder, ranks):
    # 8 optimizer steps of two batches each; steps 2 to 4 are recorded, and at the begin of step 4
    # the trainer evaluates and saves.
    assert steps_of(folder) == [list(range(8))] * len(ranks)
    run = tracekit.open_run(folder)
    assert run.ranks == ranks
    assert run.manifest.missing_ranks == ()
    for rank in ranks:
        assert run.scan("steps", rank).collect()["step"].to_list() == [2, 3, 4]
        marks = run.scan("annotations", rank).filter(pl.col("name").str.starts_with("tracekit."))
        marks = marks.sort("start_ns").collect()["name"].to_list()
        phases = [name for name in marks if name.startswith("tracekit.phase")]
        assert sorted(set(phases)) == ["tracekit.phase evaluation", "tracekit.phase saving"]
    return run


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_two_lines_record_all_ranks(torchrun, tmp_path, name):
    said = torchrun(name, tmp_path / "run", script=JOB)
    assert {rank: each["heavy"] for rank, each in said.items()} == {0: [], 1: []}
    check(tmp_path / "run", (0, 1))


@pytest.mark.parametrize("name", [*FRAMEWORKS, "pytorch_lightning"])
def test_one_process_is_rank_0_of_1(python, tmp_path, name):
    python(JOB, name, tmp_path / "run")
    run = check(tmp_path / "run", (0,))
    samples = run.scan("samples", 0).filter(pl.col("step") == 3).collect()
    # two batches of two samples: of 3 to 6 tokens, each padded to 8
    assert samples.height == 4
    assert set(samples["length"]) <= {3, 4, 5, 6}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_exception_in_training_leaves_a_run(python, tmp_path, name):
    with pytest.raises(subprocess.CalledProcessError) as raised:
        python(JOB, name, tmp_path / "run", "--fail-at", 4)
    assert "the job fails" in raised.value.stderr.decode()
    run = tracekit.open_run(tmp_path / "run")
    assert run.scan("steps", 0).collect()["step"].to_list()[:2] == [2, 3]
    assert steps_of(tmp_path / "run") == [[0, 1, 2, 3]]


@dataclass
class Accelerator:
    """What the collection asks Accelerate, of a job whose ranks torch does not know."""

    process_index: int = 3
    num_processes: int = 8
    sync_gradients: bool = True

    def save_state(self):
        return "saved"

    def save_model(self):
        return "saved"


def test_the_rank_is_that_of_the_framework(tmp_path):
    accelerator = Accelerator()
    with AccelerateCollection(accelerator, tmp_path, **NEVER) as c:
        for number in range(6):
            accelerator.sync_gradients = number % 3 == 2
            c.step()
        assert accelerator.save_state() == "saved"
    facts = json.loads((tmp_path / "attempt=0/ranks/rank=000003.json").read_text("utf-8"))
    assert (facts["rank"], facts["world_size"]) == (3, 8)
    assert steps_of(tmp_path) == [[0, 1]]
    assert set(vars(accelerator)) == {"process_index", "num_processes", "sync_gradients"}


def test_each_training_is_an_attempt_of_its_own(tmp_path):
    collection = AccelerateCollection(Accelerator(), tmp_path, **NEVER)
    for _ in range(2):
        with collection as c:
            c.step()
    assert steps_of(tmp_path) == [[0], [0]]


def test_a_wrong_option_is_said_before_training_begins(tmp_path):
    with pytest.raises(UsageError, match="steps=0"):
        AccelerateCollection(Accelerator(), tmp_path, steps=0)
    with pytest.raises(TypeError, match="stepps"):
        AccelerateCollection(Accelerator(), tmp_path, stepps=1)


class OnDevice:
    """A tensor that must not be read."""

    ndim, device = 2, torch.device("meta")

    def __init__(self, *shape):
        self.shape = torch.Size(shape)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"attention_mask": torch.tensor([[1, 1, 0], [1, 0, 0]])}, [2, 1]),
        ({"attention_mask": OnDevice(2, 8), "input_ids": OnDevice(2, 8)}, [8, 8]),
        ({"input_ids": torch.zeros(3, 5)}, [5, 5, 5]),
        ({"input_ids": torch.zeros(5)}, []),
        ({"attention_mask": torch.zeros(2, 1, 4, 4), "input_ids": torch.zeros(2, 4)}, [4, 4]),
        ((torch.zeros(2, 4), torch.zeros(2)), []),
        (None, []),
    ],
)
def test_samples_are_as_long_as_the_mask_or_the_shape_says(batch, expected):
    assert lengths(batch) == expected
