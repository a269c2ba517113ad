"""A skip must not hide a check from CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TIMED = "import itertools, pytest\ncalls = itertools.count()\n@pytest.mark.timed\n"
CONFTEST = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("body", "ci", "passes"),
    [
        ("import pytest\ndef test_it(): pytest.skip('no time')\n", "true", False),
        ("import pytest\ndef test_it(): pytest.skip('no time')\n", "", True),
        (
            "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): ...\n",
            "true",
            False,
        ),
        ("def test_it(traces): ...\n", "true", True),
        ("import pytest\ndef test_it(): pytest.xfail('known')\n", "true", True),
        (f"{TIMED}def test_it(): assert next(calls) == 2\n", "true", True),
        (f"{TIMED}def test_it(): assert next(calls) == 3\n", "true", False),
    ],
    ids=[
        "skip-in-ci",
        "skip-at-home",
        "module-in-ci",
        "no-traces-in-ci",
        "xfail-in-ci",
        "timed-third-run",
        "timed-no-more",
    ],
)
def test_ci_accepts_a_skip_only_for_missing_hardware_or_traces(tmp_path, body, ci, passes):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "tests" / "test_it.py").write_text(body, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "tests"],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "TRACEKIT_TRACES": str(tmp_path / "absent")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stdout
