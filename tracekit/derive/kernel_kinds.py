"""What kind of work a kernel does, from its name: the one recogniser for communication too.

The order of the rules matters: communication first (a "reduce" inside `ncclDevKernel_AllReduce` is
no reduction), then the specific kinds, then the general ones.
"""

from __future__ import annotations

import re
from functools import cache

COMMUNICATION = "communication"

_COMMUNICATION = re.compile(
    r"""
    nccl(?:Dev)?Kernel | ^nccl | ncclx | \brccl | msccl      # NCCL old and new, NCCLX, RCCL, MSCCL
  | deep_ep::(?!.*layout) | \bnvshmem | nvshmemi             # DeepEP (its layout computes), NVSHMEM
  | cross_device_reduce | custom_?all_?reduce | quick_?reduce  # vLLM, SGLang, AITER all-reduce
  | reduce_scatter_cross_device | allreduce_prototype          # AITER
  | (?:one|two)_?shot_?all_?reduce | multimem_(?:all|one|two|reduce) | symm_mem
  | allreduce_fusion | trtllm_(?:mnnvl_)?all_?reduce | all_?reduce_?kernel | lamport
  | moe_?all_?to_?all | userbuffers_ | (?:hccl|xccl|oneccl|bkcl|ixccl|mccl)[:_]
  | ^gloo: | flashcomm | pplx.*(?:dispatch|combine) | all_?gather_?kernel | reduce_?scatter_?kernel
    """,
    re.IGNORECASE | re.VERBOSE,
)

_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("attention", r"flash|fmha|attention|attn|mha_|softmax.*(?:fwd|bwd).*mask|mla_|paged_kv"),
        (
            "optimizer",
            (
                r"multi_tensor_apply|adamw?\b|adam_|_adam|lamb_|sgd_|FusedOptimizer|newton_?schulz"
                r"|rowwise_adagrad|split_.*_(?:sgd|adagrad|adam)|adagrad|rmsprop"
            ),
        ),
        ("convolution", r"conv|winograd|cudnn.*(?:fprop|dgrad|wgrad)|implicit_gemm|im2col|miopen"),
        (
            "gemm",
            (
                r"gemm|nvjet|cutlass.*(?:_s\d+|wgmma)|xmma|cublas|\bmatmul|_mm_|Cijk_|wgmma|s16816"
                r"|sgemv|gemv|dot_kernel|\bfc-dtype|h884|s884|i8816|splitKreduce"
            ),
        ),
        (
            "norm",
            r"layer_?norm|rms_?norm|batch_?norm|group_?norm|\bbn_(?:fw|bw)|_norm_|norm_kernel",
        ),
        ("embedding", r"embedding|\btbe_|indexSelect|index_select"),
        ("sort", r"sort|topk|radix|scan_|cumsum|unique|histogram|permute_2d"),
        ("reduction", r"reduce|\bsum\b|reduction|argmax|argmin"),
        ("softmax", r"softmax"),
        (
            "copy",
            r"copy_kernel|CatArray|direct_copy|transpose|contiguous|memcpy|memset|fill|cat\.out",
        ),
        (
            "elementwise",
            r"elementwise|vectorized|pointwise|triton_poi|unrolled|gelu|silu|relu|dropout|bernoulli",
        ),
        ("triton", r"triton"),
    )
)


@cache
def kind_of(name: str) -> str:
    """Kind of one kernel name: communication, gemm, attention, …; "other" where no rule fits."""
    if _COMMUNICATION.search(name):
        return COMMUNICATION
    for kind, pattern in _RULES:
        if pattern.search(name):
            return kind
    return "other"


_OPERATIONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (operation, re.compile(pattern, re.IGNORECASE))
    for operation, pattern in (
        ("reduce_scatter", r"reduce_?scatter"),
        ("all_gather", r"all_?gather"),
        ("all_reduce", r"all_?reduce|cross_device_reduce|quick_?reduce"),
        ("all_to_all", r"all_?to_?all"),
        ("broadcast", r"broadcast"),
        ("gather", r"\bgather"),
        ("scatter", r"\bscatter"),
        ("barrier", r"barrier"),
        ("dispatch", r"dispatch"),
        ("combine", r"combine"),
        ("send", r"\bi?send(?!_?recv)"),
        ("recv", r"\bi?recv"),
        ("reduce", r"reduce"),
    )
)


@cache
def operation_of(name: str) -> str | None:
    """Operation of a collective from the name of a call or kernel.

    `ncclDevKernel_SendRecv` alone is all-to-all or point-to-point: None, "not known". So is a
    kernel whose name holds no operation (`ncclDevKernel_Generic`), a coalesced call, a wait.
    """
    if re.search(r"send_?recv|^(?:nccl:)?coalesced|\bwait\b|\binit\b", name, re.IGNORECASE):
        return None
    text = re.sub(r"(?:nccl(?:Dev)?Kernel|c10d|nccl|gloo|_c10d_functional)[:_]*", " ", name)
    text = text.split("(")[0].replace("_coalesced", "")
    for operation, pattern in _OPERATIONS:
        if pattern.search(text):
            return operation
    return None


SYNCHRONIZING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier", "all_to_all"})
"""Collectives that no member leaves before all have entered (all-to-all: without zero splits)."""
POINT_TO_POINT = frozenset({"send", "recv"})
