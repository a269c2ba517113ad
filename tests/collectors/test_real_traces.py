"""Real traces: each is read to its last event, as the json module reads it."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from contextlib import suppress

import pytest

from tracekit.collectors import Options, RankFile, kineto, sniffed
from tracekit.errors import TracekitError

SAMPLE = (
    "KellerJordan+modded-nanogpt",
    "ModelTC+lightllm",
    "pytorch+kineto",
    "collectives-4-ranks",
    "cpu-gloo-torch213",
    "facebookresearch+param",
)


def kineto_files(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and kineto.sniff(path)]


def unpacked(path):
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def converted(path, folder):
    return kineto.convert(RankFile(path=path, rank=0, rank_source="test"), folder, Options())


def test_there_are_many(traces):
    assert len(kineto_files(traces / "traces")) > 150


@pytest.mark.parametrize("name", SAMPLE)
def test_each_event_lands_in_a_table_or_is_counted(traces, tmp_path, name):
    paths = kineto_files(traces / "traces" / name)
    assert paths
    for path in paths[:4]:
        document = json.loads(unpacked(path))
        events = document if isinstance(document, list) else document["traceEvents"]
        capture = converted(path, tmp_path / "run")
        assert capture.n_events == len(events), path
        by_category = Counter(event.get("cat", "") for event in events if event["ph"] == "X")
        assert capture.n_by_category == by_category, path
        n_memory = sum(1 for e in events if e["ph"] == "i" and e["name"] == "[memory]")
        n_rows = sum(
            n
            for table, n in capture.n_rows.items()
            if table not in ("ranks", "steps", "collectives", "capture_quality")
        )
        n_windows = by_category["Trace"]
        n_dropped = sum(capture.dropped.values())
        assert n_rows == sum(by_category.values()) - n_windows + n_memory - n_dropped, path


@pytest.mark.slow
def test_every_file_is_read_without_damage(traces, tmp_path):
    for path in kineto_files(traces / "traces"):
        if path.stat().st_size > 300_000:
            continue  # seconds each; the sets of several ranks are analysed elsewhere
        capture = converted(path, tmp_path / "run")
        assert "damaged" not in capture.dropped, path
        assert not {"truncated", "repaired JSON"} & {c.check for c in capture.quality}, path


@pytest.mark.slow
def test_real_files_damaged_at_random_are_read_or_refused(traces, tmp_path):
    dice = random.Random(7)
    paths = [
        path
        for path in kineto_files(traces / "traces")
        if path.stat().st_size < 200_000 and sniffed(path)
    ]
    for number in range(60):
        path = dice.choice(paths)
        data = bytearray(path.read_bytes() if number % 3 else unpacked(path))
        for _ in range(dice.randint(1, 5)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        if number % 2:
            del data[dice.randrange(len(data)) :]
        damaged = tmp_path / "damaged.json"
        damaged.write_bytes(data)
        with suppress(TracekitError):  # what else is raised fails the test
            converted(damaged, tmp_path / "run")
