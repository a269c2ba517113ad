"""What the names of runtime calls and copies tell: what a call does, which way a copy goes."""

from __future__ import annotations

import re
from functools import cache

_ROLES = tuple(
    (role, re.compile(pattern, re.IGNORECASE))
    for role, pattern in (
        ("graph-launch", r"GraphLaunch"),
        ("stream-wait", r"StreamWaitEvent"),
        ("sync", r"Synchronize|EventQuery|StreamQuery|zeEventHostSync|urEventWait"),
        ("event-record", r"EventRecord"),
        ("copy", r"Memcpy|Memset|MemcpyDtoH|urEnqueueUSM"),
        (
            "allocation",
            r"Malloc|Free(?!Async)|HostAlloc|HostRegister|MemCreate|MemMap|MemRelease|Mem(?:Alloc|Free)",
        ),
        ("module-load", r"ModuleLoad|LibraryLoad|ModuleGetFunction|LinkAdd"),
        ("launch", r"Launch|runFunction|Enqueue|ExtModule"),
    )
)
_COPY_KINDS = re.compile(
    r"(HtoD|DtoH|DtoD|HtoH|PtoP|P2P|AtoD|DtoA|HOST_TO_DEVICE|DEVICE_TO_HOST)", re.IGNORECASE
)


@cache
def role_of(name: str) -> str:
    """What a runtime or driver call does, from its name."""
    return next((role for role, pattern in _ROLES if pattern.search(name)), "other")


@cache
def copy_kind(name: str, direction: str) -> str | None:
    """From where to where a copy goes, as in HtoD, or that it is a memset."""
    if "memset" in name.lower() or "fillBuffer" in name:
        return "memset"
    match = _COPY_KINDS.search(f"{name} {direction}")
    if not match:
        return None
    kind = match.group().lower()
    longer = {"host_to_device": "HtoD", "device_to_host": "DtoH", "ptop": "P2P", "p2p": "P2P"}
    return longer.get(kind, kind[0].upper() + "to" + kind[-1].upper())


@cache
def host_memory(name: str) -> str | None:
    """Kind of the host memory that a copy reads or writes, where its name tells."""
    lower = name.lower()
    return "pageable" if "pageable" in lower else "pinned" if "pinned" in lower else None
