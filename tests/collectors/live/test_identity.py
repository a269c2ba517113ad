"""Who a process is, from its launcher; and what it may tell of its environment."""

from __future__ import annotations

import pytest

from tracekit.collectors.live.attempt import job_key
from tracekit.collectors.live.identity import identity
from tracekit.collectors.live.surroundings import environment

TORCHRUN = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}
MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (TORCHRUN, (9, 16, 1, "torchrun")),
        (TORCHRUN | SLURM, (9, 16, 1, "torchrun")),  # torchrun inside of Slurm
        (SLURM, (3, 4, 1, "slurm")),
        (MPI, (2, 4, 0, "mpi")),
        ({}, (0, 1, 0, None)),
        ({"RANK": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, (0, 1, 0, None)),
    ],
)
def test_the_launcher_says_who_a_process_is(variables, expected):
    who = identity(environment=variables)
    assert (who.rank, who.world_size, who.local_rank, who.launcher) == expected


def test_what_is_given_goes_first():
    who = identity(5, 8, environment=TORCHRUN)
    assert (who.rank, who.world_size) == (5, 8)


def test_what_is_not_given_is_found():
    assert identity(5, environment=TORCHRUN).world_size == 16
    who = identity(world_size=32, environment=TORCHRUN)
    assert (who.rank, who.world_size) == (9, 32)


def test_a_rank_that_no_file_is_named_after_is_refused():
    with pytest.raises(ValueError, match="ranks go up to 999999"):
        identity(10**6)


def test_bytes_that_are_no_text_may_stand_in_the_environment():
    assert environment({"NCCL_DEBUG": "\udcff"}) == {"NCCL_DEBUG": "?"}
    assert job_key({"MASTER_ADDR": "\udcff"}) != job_key({"MASTER_ADDR": ""})


def test_only_variables_that_matter_are_kept_and_no_secret():
    kept = environment(
        {
            "NCCL_DEBUG": "INFO",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "HOME": "/home/somebody",
            "NCCL_API_KEY": "secret",
            "OMP_NUM_THREADS": "1",
            "WANDB_API_KEY": "secret",
        }
    )
    assert list(kept) == ["NCCL_DEBUG", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF"]
