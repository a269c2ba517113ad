"""Variables to set, launchers, the clock, and the folder that a recording is written to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.collectors.preflight import clock_discipline, run_folder
from tracekit.collectors.preflight.clock_discipline import Discipline, discipline
from tracekit.collectors.preflight.run_folder import file_system

CHRONY = "C0A80101,ntp.example,3,1796061942.2,{offset},0.0,0.0,-5.1,0.0,0.02,0.001,0.0,64.0,{leap}"


def states(answers):
    return [state for state, _, _ in answers]


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("TORCH_FR_BUFFER_SIZE", "0", "2000"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "0", "2000"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", "1"),
        ("TORCH_NCCL_ENABLE_TIMING", "1", "0"),
        ("NCCL_DEBUG", "warn", "INFO"),
        ("TEARDOWN_CUPTI", "1", "0"),
        ("OMP_NUM_THREADS", "1", "8"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", "8"),
    ],
)
def test_a_value_that_is_amiss_is_a_note_that_says_what_to_set(fake, ask, name, bad, good):
    def said():
        return next(each for each in ask("variables") if each[1].startswith((f"{name}=", name)))

    fake.set(**{name: bad})
    state, text, fix = said()
    assert (state, text.startswith(f"{name}={bad}: ")) == ("note", True)
    assert fix
    fake.set(**{name: good})
    assert said() == ("ok", f"{name}={good}.", "")


def test_what_is_not_set_is_amiss_only_where_its_default_is(ask):
    unset = {text.partition(" ")[0] for state, text, _ in ask("variables") if state == "note"}
    assert unset == {"NCCL_DEBUG", "TORCH_NCCL_DUMP_ON_TIMEOUT"}


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "16", "LOCAL_RANK": "3"},
            "Started under torchrun: this is rank 3 of 16.",
        ),
        (
            {
                "SLURM_JOB_ID": "9",
                "SLURM_PROCID": "1",
                "SLURM_NTASKS": "2",
                "SLURM_LOCALID": "1",
            },
            "Started under Slurm: this is rank 1 of 2.",
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            },
            "Started under mpirun and Kubernetes: this is rank 0 of 8.",
        ),
    ],
)
def test_rank_and_world_size_are_read_from_the_launcher(fake, ask, variables, text):
    fake.set(**variables)
    assert ask("launcher") == [("ok", text, "")]


def test_a_launcher_that_names_no_rank_is_a_note(fake, ask):
    fake.set(RAY_JOB_ID="01000000", SLURM_JOB_ID="9")
    ((state, text, fix),) = ask("launcher")
    assert state == "note"
    assert text.startswith("Started under Slurm and Ray; rank and world size are not")
    assert "srun tracekit doctor" in fix


def test_chrony_says_how_far_off_the_clock_is(fake, ask):
    fake.program("chronyc", f"echo '{CHRONY.format(offset='-0.000012500', leap='Normal')}'")
    expected = "chrony keeps the clock to within 12.5 µs of its source."
    assert ask("clock-discipline") == [("ok", expected, "")]


def test_chrony_without_a_source_is_a_note(fake, ask):
    fake.program("chronyc", f"echo '{CHRONY.format(offset='0.0', leap='Not synchronised')}'")
    assert states(ask("clock-discipline")) == ["note"]


@pytest.mark.parametrize(
    ("known", "state"),
    [
        (Discipline(is_kept=True, error_us=150), "ok"),
        (Discipline(is_kept=False, error_us=16_000_000), "note"),
    ],
)
def test_without_chrony_the_kernel_is_asked(ask, monkeypatch, known, state):
    monkeypatch.setattr(clock_discipline, "discipline", lambda: known)
    ((said, text, _),) = ask("clock-discipline")
    assert said == state
    assert ("150 µs" in text) == known.is_kept


@pytest.mark.parametrize(("answer", "state"), [("yes", "ok"), ("no", "note")])
def test_where_the_kernel_is_silent_systemd_is_asked(fake, ask, monkeypatch, answer, state):
    def refused():
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(clock_discipline, "discipline", refused)
    assert ask("clock-discipline")[0][1] == "Nothing here says whether the clock is kept right."
    fake.program("timedatectl", f"echo {answer}")
    assert states(ask("clock-discipline")) == [state]


def test_the_kernel_of_this_machine_answers():
    assert discipline().error_us >= 0


def test_a_slow_clock_source_is_a_note(fake, ask):
    place = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    fake.write(place, "hpet\n")
    assert ask("clock-discipline")[-1][2] == "Boot the host with clocksource=tsc"
    fake.write(place, "tsc\n")
    assert len(ask("clock-discipline")) == 1


def test_a_folder_is_written_to_and_left_as_it_was(fake, ask):
    folder = fake.folder / "runs"
    folder.mkdir()
    fake.machine = replace(fake.machine, run_folder=folder)
    assert states(ask("run-folder"))[0] == "ok"
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_yet_to_be_made_is_judged_by_the_one_it_goes_into(fake, ask):
    fake.machine = replace(fake.machine, run_folder=fake.folder / "a/b/c")
    assert ask("run-folder")[0] == ("ok", f"{fake.folder} can be written.", "")
    assert not (fake.folder / "a").exists()


def test_a_file_in_its_place_is_a_problem(fake, ask):
    fake.write("runs", "a file")
    fake.machine = replace(fake.machine, run_folder=fake.folder / "runs/first")
    ((state, text, _),) = ask("run-folder")
    assert (state, text) == (
        "problem",
        f"{fake.folder / 'runs'} is a file, where a folder is needed.",
    )


def test_a_folder_that_cannot_be_written_is_a_problem(fake, ask):
    # Nobody may write there, root neither.
    fake.machine = replace(fake.machine, run_folder=run_folder.Path("/proc/self"))
    state, text, _ = ask("run-folder")[0]
    assert state == "problem"
    assert text.startswith("/proc/self cannot be written: ")


@pytest.mark.parametrize(
    ("least_bytes", "ample_bytes", "state"),
    [(0, 0, "ok"), (0, 1 << 60, "note"), (1 << 60, 1 << 60, "problem")],
)
def test_too_little_space_is_said(fake, ask, monkeypatch, least_bytes, ample_bytes, state):
    monkeypatch.setattr(run_folder, "LEAST_BYTES", least_bytes)
    monkeypatch.setattr(run_folder, "AMPLE_BYTES", ample_bytes)
    fake.machine = replace(fake.machine, run_folder=fake.folder)
    assert ask("run-folder")[1][0] == state


@pytest.mark.parametrize(
    ("kind", "state", "part"),
    [
        ("ext4", "ok", "other hosts do not see it"),
        ("nfs4", "ok", "which hosts share"),
        ("lustre", "ok", "which hosts share"),
        ("tmpfs", "note", "gone when the host restarts"),
        ("overlay", "note", "goes with its container"),
    ],
)
def test_the_kind_of_file_system_is_that_of_the_nearest_mount(fake, ask, kind, state, part):
    fake.write(
        "proc/self/mountinfo",
        "22 1 8:1 / / rw - xfs /dev/vda rw\n"
        f"30 22 0:40 / {fake.folder} rw shared:1 - {kind} source rw\n"
        f"31 22 0:41 / {fake.folder}-other rw - proc proc rw\n",
    )
    fake.machine = replace(fake.machine, run_folder=fake.folder)
    said, text, _ = ask("run-folder")[2]
    assert said == state
    assert part in text


def test_a_mount_with_a_space_in_its_name_is_found(fake):
    folder = fake.folder / "my runs"
    folder.mkdir()
    escaped = str(folder).replace(" ", "\\040")
    fake.write("proc/self/mountinfo", f"30 22 0:40 / {escaped} rw - ceph source rw\n")
    assert file_system(fake.machine, folder) == "ceph"
