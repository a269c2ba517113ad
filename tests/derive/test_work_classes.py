"""Classes of work by name and kind, and the one that makes a rank longer than others."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.derive.kernel_kinds import kind_of
from tracekit.derive.work_classes import (
    ATTENTION,
    EXPERTS,
    LINEAR,
    OTHER,
    class_at_fault,
    work_class,
)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("flash_fwd_kernel", None, ATTENTION),
        ("fmha_cutlassF_bf16", None, ATTENTION),
        ("nvjet_tst_128x256", None, LINEAR),
        ("sm90_xmma_gemm_bf16", None, LINEAR),
        ("grouped_gemm_kernel", None, EXPERTS),  # no product of all tokens
        ("fused_moe_kernel", None, EXPERTS),
        ("vectorized_elementwise", None, OTHER),
        ("aten::mm", "operator", LINEAR),
        ("aten::linear", "operator", LINEAR),
        ("autograd::engine::evaluate_function: AddmmBackward0", "operator", LINEAR),
        ("aten::scaled_dot_product_attention", "operator", ATTENTION),
        ("aten::_grouped_mm", "operator", EXPERTS),
        ("aten::gelu", "operator", OTHER),
        ("aten::command", "operator", OTHER),
        ("anything", "attention", ATTENTION),
    ],
)
def test_a_class_by_name_and_kind(name, kind, expected):
    rows = pl.DataFrame({"name": [name], "kind": [kind or kind_of(name)]})
    assert rows.select(work_class()).item() == expected


def test_a_class_without_a_name_or_kind_is_other():
    rows = pl.DataFrame(
        {"name": [None], "kind": [None]}, schema={"name": pl.String, "kind": pl.String}
    )
    assert rows.select(work_class()).item() == OTHER


def at_fault(**own):
    usual = {ATTENTION: 100.0, EXPERTS: 100.0, LINEAR: 100.0, OTHER: 100.0}
    return class_at_fault({name: own.get(name, 100.0) for name in usual}, usual)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"attention": 150}, ATTENTION),
        ({"experts": 150}, EXPERTS),
        ({"experts": 150, "attention": 150}, EXPERTS),
        ({"linear": 150}, None),
        ({"other": 150}, None),
        ({"attention": 150, "linear": 150}, None),  # slow in all of it
        ({"attention": 105}, ATTENTION),
        ({"attention": 104}, None),
        ({"attention": 140, "linear": 120}, ATTENTION),
        ({"attention": 140, "linear": 121}, None),
        ({"attention": 140, "other": 160}, ATTENTION),  # 40 of 100 more
        ({"attention": 140, "other": 161}, None),
        ({"attention": 50}, None),
        ({}, None),
    ],
)
def test_the_class_at_fault_from_both_sides(own, expected):
    assert at_fault(**own) == expected


def test_classes_that_are_missing_are_even():
    assert class_at_fault({ATTENTION: 150.0}, {ATTENTION: 100.0}) == ATTENTION
    assert class_at_fault({ATTENTION: 150.0}, {ATTENTION: 0.0, LINEAR: 100.0}) is None
    assert class_at_fault({}, {}) is None
