"""Documents say what the code does now, and only what it does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tracekit.cli import main
from tracekit.config import check_config, read_config
from tracekit.detectors import detectors
from tracekit.docgen import HEADINGS, docstring_sections

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted(
    path
    for folder in ("tracekit", "collectors", "reports", "sample_traces", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".md", ".html", ".js", ".css", ".jinja", ".toml"}
)


def test_generated_pages_are_up_to_date():
    result = CliRunner().invoke(main, ["docs", "--check", "--root", str(ROOT)])
    assert result.exit_code == 0, result.output


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def docs(*arguments):
    return CliRunner().invoke(main, ["docs", *map(str, arguments)])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: (root / "docs/cli.md").write_text("old", encoding="utf-8"),
        lambda root: (root / "docs/schema.md").unlink(),
        lambda root: (root / "docs/detectors/gone.md").write_text("", encoding="utf-8"),
    ],
    ids=["changed", "missing", "of-no-detector"],
)
def test_a_page_that_is_out_of_date_fails_the_check_and_is_mended(copy, spoil):
    spoil(copy)
    failed = docs("--check", "--root", copy)
    assert failed.exit_code != 0
    assert "Hint: Write them: tracekit docs" in failed.stderr
    assert docs("--root", copy).output.startswith("1 of ")
    assert docs("--check", "--root", copy).exit_code == 0


@pytest.mark.parametrize("detector_id", sorted(detectors()))
def test_the_docstring_of_a_detector_has_its_headings_in_order(detector_id):
    summary, sections = docstring_sections(detectors()[detector_id])
    assert summary.endswith(".")
    assert tuple(sections) == HEADINGS
    assert all(sections.values())


def test_the_limits_in_documents_exist(tmp_path):
    known = {detector.id: detector.limits for detector in detectors().values()}
    blocks = re.findall(r"```toml\n(.*?)```", "\n".join(map(read, DOCUMENTS)), re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "tracekit.toml").write_text(block, encoding="utf-8")
        check_config(read_config(tmp_path / "tracekit.toml"), known)


def test_the_commands_in_documents_exist():
    names = main.list_commands(click.Context(main))
    for path in DOCUMENTS:
        for name in re.findall(r"(?:^|[`/ ])tracekit ([a-z][a-z-]*)", "\n".join(code(read(path)))):
            assert name in names, f"{path}: tracekit {name}"


def code(markdown):
    """The code of a document: its blocks, and what stands between backticks."""
    return re.findall(r"```.*?```|`[^`\n]+`", markdown, re.DOTALL)


def read(path):
    return path.read_text(encoding="utf-8")


def test_no_text_installs_the_other_program_of_that_name():
    for path in [*DOCUMENTS, *SOURCES]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip3? install (-\S+ )*['\"]?tracekit\b(?!-gpu)", text), path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (path.parent / target).exists(), f"{path}: {target}"
