"""Fabrics between GPUs: what a device can send at most, inside a node and between nodes.

Figures are peaks of one direction in GB/s (10⁹ bytes) as makers publish them; a datasheet's sum of
both directions is halved. The bus bandwidth of nccl-tests is defined so that no ring can exceed the
slowest hop of it: the roof of a group inside a node is its GPUs' fabric, between nodes the adapters
that its members have on one node (NVIDIA/nccl-tests, doc/PERFORMANCE.md). Reductions inside a
switch (NVLink SHARP, SHARP) send each byte once and may exceed it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What joins GPUs of one node.

    `gb_per_s` is what one GPU sends to all others together. `is_switched` says that any number of
    them reach it; without it a pair of GPUs has only the links between the two. `has_nvls` says
    that the switch can reduce (NVLink SHARP). `is_direct` says that GPUs of a node have peer
    access to each other; over PCIe that depends on the server.
    """

    name: str
    gb_per_s: float
    source: str
    is_switched: bool = False
    has_nvls: bool = False
    is_direct: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Network adapters of a node: how many, and what one of them sends."""

    name: str
    n_adapters: int
    gb_per_s_each: float
    source: str

    def roof_gb_per_s(self, n_local_ranks: int) -> float:
        """What a group with so many ranks on a node can send between nodes at most.

        Each rank uses the adapter next to it; fewer ranks than adapters leave some of them idle.
        """
        return min(n_local_ranks, self.n_adapters) * self.gb_per_s_each


def _pcie(name: str, gt_per_s: float, coding: float) -> Fabric:
    """PCIe x16: 16 lanes of so many gigatransfers, less what the line code takes."""
    return Fabric(
        name=f"PCIe {name} x16",
        gb_per_s=round(gt_per_s * 16 * coding / 8, 2),
        source="https://pcisig.com/specifications",
        is_direct=False,
    )


PCIE = {
    3: _pcie("3.0", 8, 128 / 130),
    4: _pcie("4.0", 16, 128 / 130),
    5: _pcie("5.0", 32, 128 / 130),
    6: _pcie("6.0", 64, 242 / 256),
}
"""By generation; the sixth has flits of 256 bytes, of which 242 are for packets and their ends."""
_NVLINK = "https://www.nvidia.com/en-us/data-center/nvlink/"
NVLINK_2 = Fabric(
    name="NVLink 2",
    gb_per_s=150.0,
    source="https://www.nvidia.com/en-us/data-center/v100/",  # 300 GB/s, both directions
)
NVLINK_3 = Fabric(
    name="NVLink 3",
    gb_per_s=300.0,
    source="https://www.nvidia.com/en-us/data-center/a100/",  # 600 GB/s
    is_switched=True,
)
NVLINK_4 = Fabric(
    name="NVLink 4",
    gb_per_s=450.0,
    source="https://www.nvidia.com/en-us/data-center/h100/",  # 900 GB/s
    is_switched=True,
    has_nvls=True,
)
NVLINK_5 = Fabric(
    name="NVLink 5",
    gb_per_s=900.0,
    source=_NVLINK,  # 1.8 TB/s
    is_switched=True,
    has_nvls=True,
)
_AMD = "https://www.amd.com/en/products/accelerators/instinct"


def _infinity(links: int, gb_per_s: float, page: str) -> Fabric:
    """Direct links, one to each other GPU of the node: a pair has one of them."""
    return Fabric(name="Infinity Fabric", gb_per_s=links * gb_per_s, source=f"{_AMD}/{page}.html")


_MODELS: tuple[tuple[str, Fabric], ...] = (
    (r"\bV100-SXM|\bV100-DGXS", NVLINK_2),
    (r"\bV100-PCIE|\bT4\b|\bP100-PCIE", PCIE[3]),
    (r"\bA100-SXM|\bA100-SXM4", NVLINK_3),
    (r"\bA100[ -]PCIe|\bA100-PCIE|\bA10G?\b|\bA40\b|\bA30\b|\bL4\b|\bL40S?\b|\bRTX ", PCIE[4]),
    (r"\bGH200|\bH200(?! NVL)|\bH100(?! PCIe| NVL)|\bH20\b", NVLINK_4),
    (r"\bB[123]00\b|\bGB[23]00\b", NVLINK_5),
    (r"\bMI210\b", _infinity(3, 50.0, "mi200/mi210")),
    (r"\bMI300X\b", _infinity(7, 64.0, "mi300/mi300x")),
    (r"\bMI325X\b", _infinity(7, 64.0, "mi300/mi325x")),
    (r"\bMI35[05]X\b", _infinity(7, 76.8, "mi350/mi355x")),
)
"""By what the driver calls the device. Left out is what has several ways to be joined: bridges of
two (H100 PCIe, H100 NVL), modules of two devices (MI250), links cut down (A800, H800)."""
INFINIBAND = {"EDR": 12.5, "HDR": 25.0, "NDR": 50.0, "XDR": 100.0}
"""GB/s of a port of four lanes. https://www.infinibandta.org/infiniband-roadmap/"""
_EFA = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html"
EFA = {
    name: Adapters(name=f"EFA of {name}", n_adapters=n, gb_per_s_each=gbit / 8, source=_EFA)
    for name, n, gbit in (
        ("p4d.24xlarge", 4, 100),
        ("p4de.24xlarge", 4, 100),
        ("p5.48xlarge", 32, 100),
        ("p5e.48xlarge", 32, 100),
        ("p5en.48xlarge", 16, 200),
        ("p6-b200.48xlarge", 8, 400),
    )
}
"""Of p5 a GPU has four adapters and of p5en two, which one rank uses together (`adapters_of`)."""
N_GPUS = 8
"""Of every instance in `EFA`."""


def fabric_of(gpu_model: str | None) -> Fabric | None:
    """What joins GPUs of this model in a node; null where that is not known."""
    if gpu_model is None:
        return None
    return next((fabric for pattern, fabric in _MODELS if re.search(pattern, gpu_model)), None)


def adapters_of(instance: str) -> Adapters | None:
    """Adapters of an AWS instance, those of one GPU together; null for others."""
    found = EFA.get(instance)
    if found is None or found.n_adapters <= N_GPUS:
        return found
    each = found.gb_per_s_each * found.n_adapters / N_GPUS
    return Adapters(name=found.name, n_adapters=N_GPUS, gb_per_s_each=each, source=found.source)
