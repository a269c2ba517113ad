"""Where output goes, and the small grammars of options: steps A:B, lists of ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def output_folder(paths: Sequence[str], output: Path | None) -> Path:
    """The folder to write to: `--output`, else ./tracekit-NAME, never inside a source.

    Raises:
        UsageError: `--output` lies inside a source, or there is no place outside of it.
    """
    sources = [Path(path).resolve() for path in paths if Path(path).is_dir()]
    if output is None:
        folder = Path.cwd() / f"tracekit-{_name(paths[0])}"
        while any(folder.is_relative_to(source) for source in sources):
            if folder.parent == folder.parent.parent:
                raise UsageError(
                    f"{paths[0]}: no folder lies outside of it",
                    hint="Say where to write: --output DIR",
                )
            folder = folder.parent.parent / folder.name  # beside the source, not in it
        return folder
    inside = next((s for s in sources if output.resolve().is_relative_to(s)), None)
    if inside is not None:
        raise UsageError(
            f"--output {output}: lies inside the source {inside}",
            hint="Choose a folder outside of the traces.",
        )
    return output


def free_for_run(run: Path) -> Path:
    """The folder, if a run can be written there.

    Raises:
        UsageError: something else stands there that tracekit did not write.
    """
    from tracekit.store import is_free  # noqa: PLC0415 - loads Polars

    if not is_free(run):
        raise UsageError(
            f"{run}: is not a run of tracekit and not empty", hint="Choose another folder."
        )
    return run


def steps(text: str | None) -> tuple[int, int] | None:
    """Steps A:B, half-open.

    Raises:
        UsageError: the text is no pair of numbers.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(
            f"--steps {text}: must be A:B with A < B", hint="--steps 10:20 takes the steps 10 to 19"
        )
    return int(match[1]), int(match[2])


def ranks(text: str | None) -> tuple[int, ...] | None:
    """Ranks from a list of numbers and ranges, as in 0,3,8-15.

    Raises:
        UsageError: a part of the list is neither.
    """
    if text is None:
        return None
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", part)
        if match is None:
            raise UsageError(f"--ranks {text}: {part!r} is no rank", hint="As in --ranks 0,3,8-15")
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
        if not numbers:
            raise UsageError(f"--ranks {text}: {part!r} is empty", hint="As in --ranks 0,3,8-15")
        found |= dict.fromkeys(numbers)
    return tuple(found)


def _name(path: str) -> str:
    """What a source is called: folder or file without its endings, or the folder of a pattern."""
    fixed = re.split(r"[*?\[]", path)[0] if not Path(path).exists() else path
    place = Path(fixed or ".").resolve()
    name = re.sub(
        r"(\.pt)?(\.trace)?\.(json|zip|tar|tgz)(\.(gz|bz2|xz))?$", "", place.name or "traces"
    )
    return re.sub(r"[^\w.+@-]+", "-", name).strip("-") or "traces"
