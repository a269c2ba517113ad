"""The command: its options before and after a command, its errors, and its exit codes."""

from __future__ import annotations

import ast
import importlib.metadata
import logging
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tracekit import cli
from tracekit.cli import Options, main, pass_options, progress_bar
from tracekit.cli._group import LazyGroup
from tracekit.errors import InputError, UsageError

FOLDER = Path(cli.__file__).parent
COMMANDS = main.list_commands(click.Context(main))

SHOW = '''"""Show the options."""

import logging

import click

from tracekit.cli import Options, pass_options
from tracekit.errors import InputError


@click.command()
@click.option("--fail", is_flag=True)
@pass_options
def command(options: Options, *, fail: bool) -> None:
    """Show the options."""
    if fail:
        raise InputError("r0.json: not JSON", hint="Record it again")
    logging.getLogger("tracekit.test").info("seen")
    click.echo(repr(options))
'''


@pytest.fixture(autouse=True)
def quiet_afterwards():
    log = logging.getLogger("tracekit")
    before = log.level, list(log.handlers)
    yield
    log.setLevel(before[0])
    log.handlers[:] = before[1]


@pytest.fixture
def show(tmp_path, monkeypatch):
    """The command `tracekit` with one command, `show`, in place of its own."""
    folder = tmp_path / f"commands_of_{tmp_path.name}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "show_options.py").write_text(SHOW, encoding="utf-8")
    (folder / "_hidden.py").write_text("raise RuntimeError", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    parts = {"params": main.params, "callback": main.callback}
    group = LazyGroup("tracekit", folder=folder, package=folder.name, **parts)
    return lambda *arguments: CliRunner().invoke(group, arguments)


def test_help_lists_each_command_with_one_line():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        source = (FOLDER / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
        summary = ast.get_docstring(ast.parse(source)).partition("\n")[0]
        assert f"  {name} " in result.output
        assert summary in " ".join(result.output.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_its_help_ends_with_an_example(name):
    result = CliRunner().invoke(main, [name, "--help"], terminal_width=200)
    assert result.exit_code == 0
    last = result.output.rstrip().rpartition("\n\n")[2].strip()
    assert last.startswith(("Example: tracekit ", "Examples:"))
    assert f"tracekit {name}" in last


def test_a_module_with_an_underscore_is_no_command(show):
    result = show("--help")
    assert "show-options" in result.output
    assert "hidden" not in result.output


def test_options_work_before_the_command(show):
    result = show("--engine", "local:2", "--redact", "show-options")
    assert result.output.strip() == repr(Options(engine="local:2", redact=True))


def test_options_work_after_the_command(show):
    result = show("show-options", "--config", "t.toml", "-q")
    assert result.output.strip() == repr(Options(config_path=Path("t.toml"), quiet=True))


def test_the_option_after_the_command_counts(show):
    result = show("--engine", "local:2", "--redact", "show-options", "--engine", "local:3")
    assert result.output.strip() == repr(Options(engine="local:3", redact=True))


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("report", "--engine --config --redact"),
        ("explain", "--engine --config --redact"),
        ("docs", "--engine --config --redact"),
        ("info", "--config --redact"),
        ("convert", "--config"),
        ("analyze", ""),
        ("demo", ""),
    ],
)
def test_a_command_has_only_the_options_it_uses(command, refused):
    shown = CliRunner().invoke(main, [command, "--help"]).output
    absent = [name for name in ("--engine", "--config", "--redact") if name not in shown.split()]
    assert absent == refused.split()
    assert "--quiet" in shown
    for option in absent:
        value = [] if option == "--redact" else ["x"]
        after = CliRunner().invoke(main, [command, "x", option, *value])
        assert (after.exit_code, "No such option" in after.stderr) == (2, True)
        before = CliRunner().invoke(main, [option, *value, command, "x"])
        assert before.exit_code == 2
        assert before.stderr.startswith(f"Error: {option}: {command} takes no such option\n")


def test_the_log_is_shown_when_asked_for(show):
    assert "info: seen" in show("show-options", "-v").stderr
    assert show("show-options").stderr == ""
    assert show("-v", "show-options", "-q").stderr == ""


def test_what_a_person_can_mend_is_printed_without_a_traceback(show):
    result = show("show-options", "--fail")
    assert result.exit_code == InputError.exit_code == 3
    assert result.stdout == ""
    assert result.stderr == "Error: r0.json: not JSON\nHint: Record it again\n"


def test_bad_use_ends_with_2(show):
    assert show("show-options", "--nothing").exit_code == UsageError.exit_code == 2
    assert show("nothing").exit_code == 2
    assert "No such command" in show("nothing").stderr


@pytest.mark.parametrize("arguments", [["--version"], ["report", "--version"]])
def test_the_version_is_that_of_the_distribution(arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.output == f"tracekit {importlib.metadata.version('tracekit-gpu')}\n"


def test_a_progress_bar_is_silent_when_piped(capsys):
    with progress_bar(Options(), "Reading", total=2) as advance:
        advance(1, "rank 0")
        advance(1, "rank 1")
    assert capsys.readouterr() == ("", "")


def test_a_progress_bar_is_silent_when_quiet(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress_bar(Options(quiet=True), "Reading", total=2) as advance:
        advance(1, "rank 0")
    assert capsys.readouterr() == ("", "")


def test_a_progress_bar_is_drawn_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar(Options(), "Reading", total=2) as advance:
        advance(2, "rank [0]")
    output = capsys.readouterr()
    assert output.out == ""
    assert "Reading" in output.err
    assert "rank [0]" in output.err


def test_options_reach_a_command_that_is_called_alone():
    @click.command()
    @pass_options
    def alone(options):
        click.echo(repr(options))

    assert CliRunner().invoke(alone, []).output.strip() == repr(Options())
