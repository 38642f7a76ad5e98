"""Experts of a mixture on CPUs are packed again after every reload of the weights.

vLLM 0.32.0 packs them into the layout that its CPU kernel reads on the first load only. A reload copies the checkpoint's layout
into the same storage, and the kernel reads it as if it were packed: no error, wrong logits (measured: KL 3.6 against the
trainer). Whoever relies on it proves it by comparing a reload with a fresh start.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

    if hasattr(UnquantizedFusedMoEMethod, "rollproof_packs"):
        return
    setup_kernel = UnquantizedFusedMoEMethod._setup_kernel

    def packing_again(method: Any, layer: Any, *args: Any, **kwargs: Any) -> None:
        again = method.moe_kernel is not None
        setup_kernel(method, layer, *args, **kwargs)
        if again:  # the first time vLLM does it itself
            method.moe_kernel.fused_experts.process_weights_after_loading(layer)

    UnquantizedFusedMoEMethod._setup_kernel = packing_again
    UnquantizedFusedMoEMethod.rollproof_packs = True
