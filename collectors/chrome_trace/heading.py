"""What a trace file says of itself outside its events: rank, groups, devices, clock, versions."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.collectors.chrome_trace import repair
from tracekit.collectors.chrome_trace.stream import head, tail
from tracekit.collectors.chrome_trace.timestamps import digits_ns

if TYPE_CHECKING:
    from pathlib import Path

HEAD_BYTES = 256 << 10
MAX_HEAD_BYTES = 64 << 20
TAIL_BYTES = 1 << 20
MAX_BASE_NS = 1 << 62
MAX_RANKS = 1_000_000
MAX_RELATIVE_NS = 10**17
"""Times below 1973 are relative to a base: Kineto writes them against `baseTimeNanoseconds`."""

_LIST_START = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_TS = re.compile(rb'"ts"\s*:\s*"?(-?[0-9][0-9.eE+-]*)')
_KEYS = (
    "distributedInfo",
    "baseTimeNanoseconds",
    "trace_id",
    "group_trace_id",
    "host_name",
    "deviceProperties",
    "PT_PROFILER_JOB_NAME",
    "PT_PROFILER_JOB_VERSION",
    "PT_PROFILER_JOB_ATTEMPT_INDEX",
)
_VERSIONS = (
    "cuda_driver_version",
    "cuda_runtime_version",
    "cupti_version",
    "hip_driver_version",
    "hip_runtime_version",
    "roctracer_version",
    "rocprofiler-sdk_version",
)
FLAGS = ("with_stack", "profile_memory", "record_shapes", "with_modules", "with_flops")


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as the trace lists it; `members` is null where the list was cut."""

    name: str
    description: str
    members: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device as the process saw it."""

    device: int
    model: str | None
    sm_count: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Facts of one trace file. A null was not recorded; `base_ns` is 0 where times are absolute."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    base_ns: int = 0
    is_base_known: bool = True
    first_ns: int | None = None
    trace_id: str | None = None
    group_trace_id: str | None = None
    job: str | None = None
    host: str | None = None
    groups: tuple[Group, ...] = ()
    devices: tuple[DeviceFacts, ...] = ()
    flags: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    digest: str = ""


def read_heading(path: Path) -> Heading:
    """Read what stands before the events and, where something is missing there, after them."""
    first = head(path, HEAD_BYTES)
    start = _LIST_START.search(first)
    is_list = first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    if start is None and not is_list and len(first) == HEAD_BYTES:
        first = head(path, MAX_HEAD_BYTES)
        start = _LIST_START.search(first)
    before = first[: start.start()] if start else b"{"
    facts = _object(before.rstrip(b", \t\r\n") + b"}") if not is_list else {}
    first_ns = _first_ns(first, start.end() if start else 0)
    is_relative = first_ns is not None and first_ns < MAX_RELATIVE_NS
    if not is_list and (
        "distributedInfo" not in facts or (is_relative and "baseTimeNanoseconds" not in facts)
    ):
        after = tail(path, TAIL_BYTES)
        last_event = max(0, after.rfind(b'"ph"'))
        facts = _last_keys(after[last_event:]) | facts
    return _heading(facts, first_ns, first)


def _first_ns(first: bytes, start: int) -> int | None:
    """Time of the first event that has one; metadata rows of other writers stand at zero."""
    for match in _TS.finditer(first, start):
        stamp_ns = digits_ns(match.group(1).decode())
        if stamp_ns is not None and stamp_ns > 0:
            return stamp_ns
    return None


def _heading(facts: dict[str, Any], first_ns: int | None, first: bytes) -> Heading:
    info = facts.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    base_ns = _integer(facts.get("baseTimeNanoseconds"), MAX_BASE_NS)
    is_relative = first_ns is None or first_ns < MAX_RELATIVE_NS
    job = "/".join(
        str(facts[key]) for key in _KEYS if key.startswith("PT_PROFILER_JOB") and facts.get(key)
    )
    return Heading(
        rank=_integer(info.get("rank"), MAX_RANKS),
        world_size=_integer(info.get("world_size"), MAX_RANKS),
        backend=_text(info.get("backend")),
        base_ns=base_ns or 0 if is_relative else 0,
        is_base_known=base_ns is not None or not is_relative,
        first_ns=first_ns,
        trace_id=_text(facts.get("trace_id")),
        group_trace_id=_text(facts.get("group_trace_id")),
        job=job or None,
        host=_text(facts.get("host_name")),
        groups=_groups(info.get("pg_config")),
        devices=_devices(facts.get("deviceProperties") or facts.get("computeProperties")),
        flags=tuple(flag for flag in FLAGS if facts.get(flag)),
        versions={key: str(facts[key]) for key in _VERSIONS if key in facts}
        | ({"nccl": str(info["nccl_version"])} if "nccl_version" in info else {}),
        digest=hashlib.sha256(first[:HEAD_BYTES]).hexdigest(),
    )


def _object(text: bytes) -> dict[str, Any]:
    """Parse an object; one that is damaged gives the known keys that can be read."""
    try:
        value = json.loads(repair.cleaned(text), strict=False)
    except (ValueError, RecursionError):
        return _last_keys(text)
    return value if isinstance(value, dict) else {}


def _last_keys(text: bytes) -> dict[str, Any]:
    """The known keys that occur in a piece of JSON, each read on its own."""
    decoder = json.JSONDecoder(strict=False)
    found: dict[str, Any] = {}
    clean = repair.cleaned(text).decode()
    for key in (*_KEYS, *_VERSIONS, *FLAGS):
        at = clean.rfind(f'"{key}"')
        colon = clean.find(":", at)
        if at < 0 or colon < 0:
            continue
        value_at = colon + 1 + len(clean[colon + 1 :]) - len(clean[colon + 1 :].lstrip())
        try:
            found[key] = decoder.raw_decode(clean, value_at)[0]
        except (ValueError, RecursionError):
            continue
    return found


def _groups(listed: object) -> tuple[Group, ...]:
    if not isinstance(listed, list):
        return ()
    groups = (entry for entry in listed if isinstance(entry, dict))
    return tuple(
        Group(
            str(entry.get("pg_name", "")),
            str(entry.get("pg_desc", "")),
            members(entry.get("ranks")),
        )
        for entry in groups
    )


def members(listed: object) -> tuple[int, ...] | None:
    """Global ranks from a list or its text; None where the text was cut ("…") or is no list."""
    return numbers(listed, MAX_RANKS)


def numbers(listed: object, below: int) -> tuple[int, ...] | None:
    """Whole numbers from a list or its text; None where one is not, or the text was cut ("…")."""
    if isinstance(listed, str):
        if "..." in listed:
            return None
        listed = [part for part in listed.strip("[] ").split(",") if part.strip()]
    if not isinstance(listed, list) or not listed:
        return None
    found = [_integer(number, below) for number in listed]
    return tuple(number for number in found if number is not None) if None not in found else None


def _devices(listed: object) -> tuple[DeviceFacts, ...]:
    if not isinstance(listed, list):
        return ()
    return tuple(
        DeviceFacts(
            device=index if (number := _integer(entry.get("id"), MAX_RANKS)) is None else number,
            model=_text(entry.get("name")),
            sm_count=_integer(entry.get("numSms"), MAX_BASE_NS),
            memory_bytes=_integer(entry.get("totalGlobalMem"), MAX_BASE_NS),
        )
        for index, entry in enumerate(listed)
        if isinstance(entry, dict)
    )


def _integer(value: object, limit: int) -> int | None:
    """A whole number from 0 up to the limit, given as such or as its digits; else None."""
    text = str(value).strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        return None
    return number if (number := int(text)) < limit else None


def _text(value: object) -> str | None:
    return str(value) if value not in (None, "") else None
