"""Fabrics: peaks of one direction, and the roof of bus bandwidth that follows."""

from __future__ import annotations

import pytest

from tracekit.devices import EFA, INFINIBAND, PCIE, adapters_of, fabric_of


@pytest.mark.parametrize(
    ("model", "gb_per_s", "has_nvls"),
    [
        ("Tesla V100-SXM2-16GB", 150, False),  # 6 links of 25
        ("NVIDIA A100-SXM4-80GB", 300, False),  # 12 of 25
        ("A100-SXM4-40GB", 300, False),
        ("NVIDIA H100 80GB HBM3", 450, True),  # 18 of 25
        ("NVIDIA H200", 450, True),
        ("NVIDIA GH200 480GB", 450, True),
        ("NVIDIA B200", 900, True),  # 18 of 50
        ("NVIDIA L40S", 31.51, False),
        ("NVIDIA A100-PCIE-40GB", 31.51, False),
        ("Tesla T4", 15.75, False),
        ("AMD Instinct MI300X", 448, False),  # 7 of 64
        ("AMD Instinct MI210", 150, False),
    ],
)
def test_a_device_by_its_name(model, gb_per_s, has_nvls):
    fabric = fabric_of(model)
    assert (fabric.gb_per_s, fabric.has_nvls) == (gb_per_s, has_nvls)
    assert fabric.source.startswith("https://")


@pytest.mark.parametrize(
    "model", [None, "", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "cpu", "MI250X"]
)
def test_what_can_be_joined_in_several_ways_is_not_known(model):
    assert fabric_of(model) is None


def test_pcie_doubles_with_each_generation():
    # 16 lanes · 8 GT/s · 128/130 / 8 bits = 15.75 GB/s
    assert [PCIE[generation].gb_per_s for generation in (3, 4, 5, 6)] == [
        15.75,
        31.51,
        63.02,
        121.0,
    ]
    assert INFINIBAND["NDR"] == 400 / 8


def test_few_ranks_of_a_node_leave_adapters_idle():
    # p4d: four adapters of 100 Gb/s for eight GPUs
    p4d = adapters_of("p4d.24xlarge")
    assert [p4d.roof_gb_per_s(n) for n in (1, 2, 8)] == [12.5, 25.0, 50.0]


def test_a_gpu_with_several_adapters_uses_them_together():
    # p5: 32 adapters of 100 Gb/s, four a GPU
    assert EFA["p5.48xlarge"].n_adapters == 32
    assert adapters_of("p5.48xlarge").roof_gb_per_s(1) == 50.0
    assert adapters_of("p5.48xlarge").roof_gb_per_s(8) == 400.0
    assert adapters_of("c5.large") is None
