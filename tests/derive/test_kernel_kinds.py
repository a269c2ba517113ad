"""The one recogniser: which names communicate, what they do, and what must not be taken for it."""

from __future__ import annotations

import pytest

from tracekit.derive.kernel_kinds import COMMUNICATION, kind_of, operation_of


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",  # RCCL's one kernel
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16",
        "ncclx::kernel_ag",
        "void deep_ep::internode_ll::dispatch<false, 3, 7168>(void*, float*)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(x)",
        "nvshmemi_transfer_rma_nbi",
        "nvshmem_barrier_all_kernel",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)",
        "void sglang::cross_device_reduce_2stage<half, 4>(x)",
        "void aiter::cross_device_reduce_2stage<opus::bf16, 8, false>(x)",
        "void quickreduce::allreduce_prototype_twoshot<x>(y)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>",
        "two_shot_all_reduce_kernel",
        "multimem_all_reduce_kernel<c10::BFloat16>",
        "gloo:all_reduce",
        "mscclKernel_Sum_half_Simple_false",
    ],
)
def test_communication_is_recognised_in_every_library(name):
    assert kind_of(name) == COMMUNICATION


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("deep_ep::layout::get_dispatch_layout", "other"),  # computes where tokens go
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)", "reduction"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>(x)", "gemm"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>", "norm"),
        ("void at::native::batch_norm_collect_statistics_kernel<x>", "norm"),
        ("triton_red_fused_native_layer_norm_0", "norm"),
        ("vllm::rms_norm_kernel<c10::BFloat16>", "norm"),
        ("void flash_fwd_kernel<x>", "attention"),
        ("nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNN", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_MT64x64x64", "gemm"),
        ("void multi_tensor_apply_kernel<FusedAdamFunctor>", "optimizer"),
        ("void at::native::vectorized_elementwise_kernel<4, x>", "elementwise"),
        ("triton_poi_fused_add_0", "elementwise"),
        ("something_new", "other"),
    ],
)
def test_compute_keeps_its_kind(name, kind):
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("allreduce", "all_reduce"),
        ("nccl:all_reduce", "all_reduce"),
        ("c10d::allreduce_", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("c10d::_allgather_base_", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reduce_scatter"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "all_gather"),
        ("all_to_allv", "all_to_all"),
        ("nccl:all_to_all", "all_to_all"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("broadcast", "broadcast"),
        ("barrier", "barrier"),
        ("gather", "gather"),
        ("scatter", "scatter"),
        ("reduce", "reduce"),
        ("send", "send"),
        ("nccl:recv 0<-1", "recv"),
        ("gloo:all_to_all", "all_to_all"),
        ("void vllm::cross_device_reduce_1stage<half, 2>(x)", "all_reduce"),
        ("void deep_ep::internode_ll::dispatch<false, 3, 7168>(x)", "dispatch"),
    ],
)
def test_the_operation_is_read_from_calls_and_kernels(name, operation):
    assert operation_of(name) == operation


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",  # all-to-all or point-to-point
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "nccl:coalesced",
        "wait",
    ],
)
def test_what_a_name_does_not_say_is_not_known(name):
    assert operation_of(name) is None
