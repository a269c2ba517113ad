"""What NCCL said besides: variables that were set, warnings, networks, peers, algorithms."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.collectors.nccl_text.lines import Process

if TYPE_CHECKING:
    from tracekit.collectors.nccl_text.lines import Said

MAX_TEXT = 500
MAX_OF_PROCESS = 1000
"""Different ones that are kept of each process."""
ENVIRONMENT, WARNING, NETWORK, PEER = "environment", "warning", "network", "peer"
TUNING, RING, TREE = "tuning", "ring", "tree"
_VARIABLE = re.compile(r"((?:NCCL|RCCL)_[A-Z0-9_]{1,60}) set by environment to (.{0,300}?)\.?$")
_NET = re.compile(r"(NET/[\w -]{1,40}?|Bootstrap) ?: ?(.+)")
_OF_PLUGIN = re.compile(r"(NET/[\w -]{1,40}?) ((?:Using|Selected|Running|Setting|No|Could).+)")
_PEER = re.compile(r".*(?:P2P is disabled|[Cc]ould not enable P2P|peer-to-peer|ACS|MNNVL ).*")
_TUNING = re.compile(
    r"(?P<operation>[A-Z][A-Za-z]{2,20}): (?P<bytes>\d{1,15}) Bytes -> (?P<choice>Algo .+)"
)
_RING = re.compile(r"Channel (\d{1,5})/\d{1,5} : +([\d ]+)$")
_VERSION = re.compile(r"\b(NCCL|RCCL) version ?:? ?([\w.+-]{1,60})")
_PLUGIN_VERSION = re.compile(r"NET/OFI (?:Using|Initializing) aws-ofi-nccl ([\w.-]{1,40})")
_DRIVER = re.compile(r"cudaDriverVersion (\d{4,6})")


@dataclass(slots=True)
class Messages:
    """Messages by process, (kind, name, text) → how often; versions of what is installed."""

    by_process: dict[Process, Counter[tuple[str, str, str]]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def hear(self, said: Said) -> None:
        """Take in one line of NCCL's."""
        self.hear_version(said.text)
        found = _warning(said) or _message(said.text)
        if found is None:
            return
        counted = self.by_process.setdefault(said.process, Counter())
        kind, name, text = found
        key = (kind, name, text[:MAX_TEXT])
        if key in counted or len(counted) < MAX_OF_PROCESS:
            counted[key] += 1

    def hear_version(self, text: str) -> None:
        """Take in a version; that of NCCL stands without the name of a process in old ones."""
        for name, pattern in (("driver", _DRIVER), ("aws-ofi-nccl", _PLUGIN_VERSION)):
            if (match := pattern.search(text)) is not None:
                self.versions.setdefault(name, match[1])
        if " version" in text and (match := _VERSION.search(text)) is not None:
            self.versions.setdefault(match[1].lower(), match[2])


def _warning(said: Said) -> tuple[str, str, str] | None:
    return None if said.level == "INFO" else (WARNING, said.where or "", said.text)


def _message(text: str) -> tuple[str, str, str] | None:
    if (match := _VARIABLE.match(text)) is not None:
        return ENVIRONMENT, match[1], match[2]
    if (match := _NET.match(text) or _OF_PLUGIN.match(text)) is not None:
        return NETWORK, match[1].strip(), match[2].strip()
    if (match := _TUNING.match(text)) is not None:
        return TUNING, match["operation"], f"{match['bytes']} bytes: {match['choice']}"
    if (match := _RING.match(text)) is not None:
        return RING, match[1], " ".join(match[2].split())
    if text.startswith("Trees ["):
        return TREE, "", text.removeprefix("Trees ").partition(" comm 0x")[0]
    return (PEER, "", text) if _PEER.match(text) else None
