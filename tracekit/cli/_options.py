"""The options that commands share, as the frozen dataclass that commands receive."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tracekit.engine import engine_forms

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.config import Config

SHARED_OPTIONS = ("--engine", "--config", "--redact")
"""Options that a command takes or refuses; -v, -q and --version are for every command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was said before or after the command; said twice, the one after the command counts."""

    engine: str = "local"
    config_path: Path | None = None
    n_verbose: int = 0
    quiet: bool = False
    redact: bool = False

    def config(self) -> Config:
        """The limits of `--config`, or none.

        Raises:
            InputError: the file cannot be read, or holds a name or value it must not.
        """
        from tracekit.config import read_config  # noqa: PLC0415 - `--help` needs no configuration

        return read_config(self.config_path)


pass_options = click.make_pass_decorator(Options, ensure=True)


def common_options(taken: Collection[str] = SHARED_OPTIONS) -> list[click.Parameter]:
    """New parameters for one command; each keeps what it was given in the context's `Options`.

    Args:
        taken: those of `SHARED_OPTIONS` that the command uses.
    """
    options = [
        _option("--engine", "engine", f"Where ranks are worked on: {engine_forms()}."),
        _option(
            "--config",
            "config_path",
            "Limits of detectors: a tracekit.toml.",
            type=click.Path(path_type=Path),
        ),
        _option("-v", "--verbose", "n_verbose", "Say what is done; twice: in detail.", count=True),
        _option("-q", "--quiet", "quiet", "No progress, no warnings and no summary.", is_flag=True),
        _option(
            "--redact",
            "redact",
            "Replace names of hosts, users, paths and modules by aliases.",
            is_flag=True,
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and end.",
        ),
    ]
    refused = set(SHARED_OPTIONS) - set(taken)
    return [option for option in options if refused.isdisjoint(option.opts)]


def given_in_vain(context: click.Context, command: click.Command) -> list[str]:
    """Options that were said before a command that does not take them."""
    taken = {parameter.name for parameter in command.params}
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in taken and _is_given(context, parameter)
    ]


def set_up_logging(options: Options) -> None:
    """Send the package's log to standard error, at the level the options ask for."""
    log = logging.getLogger("tracekit")
    if not any(isinstance(handler, _Echo) for handler in log.handlers):
        log.addHandler(_Echo())
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    log.setLevel(logging.ERROR if options.quiet else levels[min(options.n_verbose, 2)])


class _Echo(logging.Handler):
    """Prints to the standard error of the moment, which a progress bar replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {self.format(record)}", err=True)


def _option(*names_and_help: str, **kwargs: Any) -> click.Option:
    *names, help_text = names_and_help
    return click.Option(names, help=help_text, expose_value=False, callback=_keep, **kwargs)


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if not _is_given(context, parameter):
        return
    context.obj = replace(context.ensure_object(Options), **{parameter.name or "": value})
    set_up_logging(context.obj)


def _is_given(context: click.Context, parameter: click.Parameter) -> bool:
    source = context.get_parameter_source(parameter.name or "")
    return source not in (None, ParameterSource.DEFAULT)


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click passes it so
    if value and not context.resilient_parsing:
        import tracekit  # noqa: PLC0415 - reads the installed metadata

        click.echo(f"tracekit {tracekit.__version__}")
        context.exit()
