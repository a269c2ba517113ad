"""A group whose commands are loaded when they run: `--help` reads files and imports none."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._options import SHARED_OPTIONS, common_options, given_in_vain
from tracekit.errors import TracekitError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPTED = 130
"""What a shell gives a command that Ctrl-C ended."""

log = logging.getLogger(__name__)


class LazyGroup(click.Group):
    """The modules of a folder as commands: `name.py` exports `command`, its docstring says what.

    A module whose command does not use all of `SHARED_OPTIONS` says in `TAKES` which it does.
    """

    def __init__(self, *args: Any, folder: Path, package: str, **kwargs: Any) -> None:
        """Keep where the modules are; none is imported yet."""
        super().__init__(*args, **kwargs)
        self._folder = folder
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of the commands, from the names of the files."""
        return sorted(
            path.stem.replace("_", "-")
            for path in self._folder.glob("*.py")
            if not path.stem.startswith("_")
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, with those of the shared options that it takes."""
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            module = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}")
            command: click.Command = module.command
            command.name = cmd_name
            command.params.extend(common_options(getattr(module, "TAKES", SHARED_OPTIONS)))
            self.add_command(command)
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was asked for, if it takes what was said before it.

        Raises:
            UsageError: an option before the command would be ignored.
        """
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and (refused := given_in_vain(ctx, command)):
            raise UsageError(
                f"{', '.join(refused)}: {name} takes no such option",
                hint=f"Leave it out, or see: tracekit {name} --help",
            )
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line for each command, read from its file."""
        rows = [(name, self._summary(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what a person can mend is printed without a traceback."""
        try:
            return super().invoke(ctx)
        except TracekitError as error:
            click.echo(f"Error: {error.message}", err=True)
            if error.hint:
                click.echo(f"Hint: {error.hint}", err=True)
            log.debug("where it was raised", exc_info=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            raise  # who reads has had enough: click ends without a word
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"Error: {where}{error.strerror or error}", err=True)
            log.debug("where it was raised", exc_info=True)
            ctx.exit(TracekitError.exit_code)
        except MemoryError:
            click.echo("Error: the memory is not enough\nHint: --engine local:1", err=True)
            ctx.exit(TracekitError.exit_code)
        except KeyboardInterrupt:
            click.echo("Interrupted: the same command goes on where it stopped", err=True)
            ctx.exit(INTERRUPTED)

    def _summary(self, name: str) -> str:
        with (self._folder / f"{name.replace('-', '_')}.py").open(encoding="utf-8") as source:
            return source.readline().strip().removeprefix('"""').removesuffix('"""')
