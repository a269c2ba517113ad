"""Which processes can be seen and looked into from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State

if TYPE_CHECKING:
    from collections.abc import Iterator

INITS = ("init", "systemd")
SCOPES = {
    0: "any process of the same user",
    1: "their parents alone",
    2: "root alone",
    3: "no process",
}
"""Who may trace a process: Linux, Documentation/admin-guide/LSM/Yama.rst."""
CAP_SYS_PTRACE = 19


def _look(machine: Machine) -> Iterator[Answer]:
    status = dict(
        line.split(":", 1)
        for line in (machine.proc / "self/status").read_text("ascii", "replace").splitlines()
        if ":" in line
    )
    yield _namespace(machine, n_numbers=len(status.get("NSpid", "").split()))
    yield _tracing(machine, may_all=bool(int(status.get("CapEff", "0"), 16) >> CAP_SYS_PTRACE & 1))


def _namespace(machine: Machine, n_numbers: int) -> Answer:
    """A namespace shows from inside only by its first process, which is no init."""
    fix = "Run the doctor and the recorder in the container of the job"
    if n_numbers > 1:
        text = "Processes have other numbers here than /proc shows: a container in a container."
        return Answer(Group.CONFLICT, State.NOTE, text, fix)
    first = (machine.proc / "1/comm").read_text("utf-8", "replace").strip()
    if first not in INITS:
        text = f"Process 1 is {first}: a container, from which programs of the host are not seen."
        return Answer(Group.CONFLICT, State.NOTE, text, fix)
    return Answer(Group.CONFLICT, State.OK, "All processes of the host are seen.")


def _tracing(machine: Machine, *, may_all: bool) -> Answer:
    """Whether stacks of a rank that hangs can be read: Linux without Yama has no such file."""
    path = machine.proc / "sys/kernel/yama/ptrace_scope"
    scope = int(path.read_text("ascii")) if path.exists() else 0
    if scope == 0 or (scope < max(SCOPES) and may_all):
        text = "Stacks of ranks that hang can be read from outside (py-spy)."
        return Answer(Group.CONFLICT, State.OK, text)
    text = f"Stacks of ranks can be read by {SCOPES.get(scope, 'few')}: ptrace_scope is {scope}."
    fix = "sysctl kernel.yama.ptrace_scope=0, or docker run --cap-add SYS_PTRACE"
    return Answer(Group.CONFLICT, State.NOTE, text, fix)


CHECK = Check(id="processes", look=_look)
