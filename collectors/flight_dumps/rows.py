"""Rows of the tables from the parts of a dump: what is there is read by its key."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tracekit.collectors.flight_dumps.values import sequence_or_none, text_or_none, unix_ns
from tracekit.derive.kernel_kinds import operation_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MS = 1_000_000
_ENDS = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)")


def progress_rows(
    dump: Mapping[str, Any],
    groups: Mapping[str, dict[str, Any]],
    entries: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """How far the rank got in each group.

    The status is kept by a number of the process, which the entries tie to the group's name; groups
    without an entry have none. That of gloo calls everything completed that was enqueued.
    """
    untold = {_group_of(entry)[0] for entry in entries if _follows_no_states(entry)}
    names = {str(entry.get("pg_id")): _group_of(entry)[0] for entry in entries}
    listed = dump.get("pg_status")
    status = {
        names[str(number)]: values
        for number, values in (listed.items() if isinstance(listed, dict) else ())
        if str(number) in names and isinstance(values, dict)
    }
    every = {**groups, **{name: groups.get(name, {}) for name in names.values()}}
    return [
        {
            "group": name,
            "group_description": facts.get("description"),
            "members": facts.get("members"),
            "last_enqueued": sequence_or_none(status.get(name, {}).get("last_enqueued_collective")),
            "last_completed": None
            if name in untold
            else sequence_or_none(status.get(name, {}).get("last_completed_collective")),
        }
        for name, facts in sorted(every.items())
    ]


def record_row(
    entry: Mapping[str, Any], groups: Mapping[str, dict[str, Any]], epoch_ns: int
) -> dict[str, Any]:
    """The row of one record; times are from `epoch_ns`, Unix time, on."""
    group, description = _group_of(entry)
    facts = groups.get(group, {})
    members = facts.get("members")
    name = text_or_none(entry.get("profiling_name")) or ""
    ends = _ENDS.search(name)
    is_message = bool(entry.get("is_p2p")) or ends is not None
    sender, receiver = _message_ends(ends, members)
    timeout_ms = entry.get("timeout_ms")
    return {
        "record_id": sequence_or_none(entry.get("record_id")),
        "group": group,
        "group_description": description or facts.get("description"),
        "members": members,
        "sequence": sequence_or_none(
            entry.get("p2p_seq_id" if is_message else "collective_seq_id", entry.get("seq_id"))
        ),
        "operation": operation_of(name),
        "name": name,
        "is_message": is_message,
        "source_rank": sender,
        "destination_rank": receiver,
        "state": text_or_none(entry.get("state")),
        "is_done": _is_done(entry),
        **{
            f"{column}_ns": None if (at := unix_ns(entry.get(key))) is None else at - epoch_ns
            for column, key in (
                ("created", "time_created_ns"),
                ("started", "time_discovered_started_ns"),
                ("completed", "time_discovered_completed_ns"),
            )
        },
        "timeout_ns": timeout_ms * MS if isinstance(timeout_ms, int) else None,
        "sizes_in": _listing(entry.get("input_sizes")),
        "sizes_out": _listing(entry.get("output_sizes")),
        "dtypes": _listing(entry.get("input_dtypes")),
        "stack": _stack(entry.get("frames")),
    }


def _is_done(entry: Mapping[str, Any]) -> bool | None:
    """Whether it ended; null where the backend does not follow states."""
    if entry.get("state") == "completed":
        return True
    return None if _follows_no_states(entry) else bool(entry.get("retired"))


def _follows_no_states(entry: Mapping[str, Any]) -> bool:
    """Whether it is one of gloo's, whose records are scheduled and retired from the start."""
    return str(entry.get("profiling_name")).startswith("gloo:")


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str | None]:
    """Name and description of a record's group; the name alone in old versions."""
    group = entry.get("process_group", entry.get("pg_name", entry.get("pg_id", "")))
    if isinstance(group, list | tuple):
        parts = [*list(group), None, None]
        return str(parts[0]), text_or_none(parts[1])
    return str(group), None


def _message_ends(
    ends: re.Match[str] | None, members: list[int] | None
) -> tuple[int | None, int | None]:
    """Global ranks of sender and receiver; the name of a message counts ranks within its group."""
    if ends is None or not members:
        return None, None
    one, other = int(ends.group(1)), int(ends.group(3))
    sender, receiver = (one, other) if ends.group(2) == "->" else (other, one)
    if max(sender, receiver) >= len(members):
        return None, None
    return members[sender], members[receiver]


def _stack(frames: object) -> str | None:
    """The call, innermost frame first, as in "train.py:41 step"."""
    if not isinstance(frames, list) or not frames:
        return None
    known = [frame for frame in frames if isinstance(frame, dict)]
    return "\n".join(f"{f.get('filename')}:{f.get('line')} {f.get('name')}" for f in known) or None


def _listing(value: object) -> str | None:
    return json.dumps(value, default=str) if value else None
