"""With `redact`, what identifies somebody is nowhere in the run, the result or the report."""

from __future__ import annotations

import json

import polars as pl
import pytest

from tracekit import api
from tracekit.collectors.sources.redaction import alias, alias_path, redacted_name
from tracekit.reports.render import write_report
from tracekit.results import write_result

SECRETS = (
    "gpu-node-17",
    "mallory7",
    "acme",
    "secretnet",
    "SecretBlock",
    "SecretEncoder",
    "classified",
    "hunter2",
)


def x(cat, name, ts, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": 5,
        "args": args,
    }


@pytest.fixture
def source(tmp_path, trace, kernel):
    """Two ranks below /…/mallory7/acme/ whose events hold names of every kind."""
    folder = tmp_path / "mallory7" / "acme"
    folder.mkdir(parents=True)
    events = [
        kernel(1),
        kernel(2),
        x("python_function", "/home/mallory7/secretnet/model.py(12): forward", 100),
        x("python_function", "secretnet/layers.py(7): __call__", 110),
        x("python_function", "train_secretnet.py(7): main", 115),
        x("python_function", "C:\\Users\\mallory7\\secretnet\\x.py(7): f", 116),
        x("python_function", "nn.Module: SecretBlock_3", 120),
        x("user_annotation", "FullyShardedDataParallel.forward (SecretEncoder.layers)", 125),
        x("user_annotation", "FSDP::pre_forward (SecretEncoder.layers.3)", 126),
        x("user_annotation", "load /data/acme/classified.bin", 127),
        x(
            "cpu_op",
            "aten::mm",
            130,
            **{"Module Hierarchy": "SecretBlock.0", "Concrete Inputs": ["hunter2"]},
        ),
        x("overhead", "read /data/classified", 140),
    ]
    for rank in (0, 1):
        document = trace(
            events,
            distributedInfo={"rank": rank, "world_size": 2},
            host_name="gpu-node-17",
            traceName="/home/mallory7/out.json",
            PT_PROFILER_JOB_NAME="acme-classified",
            ENVIRONMENT={"PASSWORD": "hunter2"},
        )
        (folder / f"rank{rank}.json").write_text(json.dumps(document), "utf-8")
    (folder / "rank9.mallory7.txt").write_text("other", "utf-8")
    return folder


@pytest.fixture
def output(source, tmp_path):
    """A folder with run, result and report."""
    result = api.analyze(source, folder=tmp_path / "out/run", redact=True)
    write_result(result, tmp_path / "out/result.json")
    write_report(result, tmp_path / "out/report.html")
    return tmp_path / "out"


def everything(output):
    """All bytes of the output, those of Parquet also unpacked; and the names of the files."""
    for path in sorted(output.rglob("*")):
        yield str(path.relative_to(output)).encode()
        if path.is_file():
            yield path.read_bytes()
        if path.suffix == ".parquet":
            yield pl.read_parquet(path).write_json().encode()


def test_no_secret_is_anywhere_in_the_output(output):
    found = {
        (secret, content[:60])
        for content in everything(output)
        for secret in SECRETS
        if secret.lower().encode() in content.lower()
    }
    assert found == set()


def test_without_redaction_names_stay_but_inputs_and_environment_do_not(source, tmp_path):
    run = api.convert(source, tmp_path / "run")
    content = b"".join(everything(tmp_path / "run"))
    assert b"gpu-node-17" in content
    assert b"SecretBlock_3" in content
    assert b"hunter2" not in content
    assert not run.manifest.is_redacted


def test_aliases_are_the_same_in_every_run(source, tmp_path):
    runs = [api.convert(source, tmp_path / name, redact=True) for name in ("a", "b")]
    assert runs[0].manifest.captures[0].host == alias("host", "gpu-node-17")
    names = [run.scan("python_frames", 0).collect()["name"].to_list() for run in runs]
    assert names[0] == names[1]
    assert len(set(names[0])) == 5


def test_a_run_with_names_is_replaced_by_a_redacted_one(source, tmp_path):
    api.convert(source, tmp_path / "run")
    assert api.convert(source, tmp_path / "run", redact=True).manifest.is_redacted
    assert b"SecretBlock" not in b"".join(everything(tmp_path / "run"))


def test_errors_in_a_redacted_run_name_no_file(source, tmp_path):
    (source / "rank1.json").write_text('{"traceEvents": [{"ph": "M"}]}', "utf-8")
    run = api.convert(source, tmp_path / "run", redact=True)
    assert run.manifest.others == ("2 other runs and files, not named",)


@pytest.mark.parametrize(
    "name",
    ["aten::mm", "Optimizer.step#AdamW.step", "ncclDevKernel_AllReduce", "a / b", "ProfilerStep#3"],
)
def test_public_names_stay(name):
    assert redacted_name(name) == name


def test_an_alias_keeps_the_kind_of_file():
    assert alias_path("/home/mallory7/r.json.gz").endswith(".json.gz")
    assert alias("host", "a") != alias("path", "a")
