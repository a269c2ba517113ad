"""What a run would take if something in it were different: replay of its operations as a graph.

`schedule` is the engine (longest paths, for many scenarios at once), `replay` a job as the engine
takes it. Two modules make one from what was recorded: `pipeline` from coarse operations, `job` from
traces of ranks (`host`, `device`). The others ask it: `slowdowns`, `critical_path`,
`efficiency_tree`, `questions`; `answers` gathers what they say.
"""

from __future__ import annotations

from tracekit.what_if.answers import WhatIf, asked

__all__ = ["WhatIf", "asked"]
