"""Compares the kernels that Inductor fuses with those of joulecast's rules (joulecast/operations/fusion.py).

    python benchmarks/fusion.py > benchmarks/FUSION.md

Inductor's scheduler runs on the CPU, in PyTorch's default mode, and is stopped before it generates code. Its kernels
are counted as on a GPU:

- The stages of one softmax, mean or normalization are one kernel, which on a GPU stores its row in registers.
- Copies that only calls on the CPU need do not count: weights of convolutions in another order, inputs of attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch._dynamo
from torch._inductor import config, scheduler

import joulecast
from joulecast.extraction.models.torchvision_models import import_torchvision
from joulecast.operations.fusion import fusion_of, role_of

_IMAGE, _TOKENS = (8, 3, 224, 224), (1, 128)
_VISION = ("vgg16_bn", "resnet50", "densenet121", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny")
_VISION_TRANSFORMERS = ("vit_b_16", "swin_t")
_ONLY_ON_CPU = ("convolution.default", "_scaled_dot_product_flash_attention_for_cpu.default")
_STAGES = ("var_mean", "amax", "sum", "mean")


@dataclass
class _Schedule:
    """The kernels of Inductor, each as the names of its operators."""

    kernels: list[set[str]] = field(default_factory=list)


class _Enough(BaseException):
    """Stops the compiler when the schedule is known. The compiler wraps each Exception into an error of its own."""


def inductor_kernels(model: torch.nn.Module, inputs: torch.Tensor, **options: Any) -> int:
    """Number of kernels that Inductor generates for a model, counted as on a GPU."""
    schedule = _Schedule()

    def read(self: Any, nodes: Any = None) -> None:
        for node in self.nodes:
            if node.is_extern() or isinstance(node, scheduler.NopKernelSchedulerNode):
                continue
            origins = {origin for part in node.get_nodes() for origin in part.node.get_origins()}
            targets = {getattr(origin.target, "__name__", str(origin.target)) for origin in origins}
            if targets and not targets & set(_ONLY_ON_CPU):
                schedule.kernels.append({origin.name for origin in origins} | targets)
        raise _Enough

    codegen = scheduler.Scheduler._codegen
    scheduler.Scheduler._codegen = read
    torch._dynamo.reset()
    try:
        with torch.no_grad(), config.patch(fx_graph_cache=False, compile_threads=1):
            torch.compile(model)(inputs, **options)
    except _Enough:
        pass  # The schedule has been read, which is all that is wanted of the compiler.
    finally:
        scheduler.Scheduler._codegen = codegen
    return sum(
        _begins(names, before) for names, before in zip(schedule.kernels, [None, *schedule.kernels], strict=False)
    )


def _begins(names: set[str], before: set[str] | None) -> bool:
    """Whether a kernel is not just a further stage of the kernel before it."""
    if before is None:
        return True
    shared = {name for name in names & before if "." not in name and name.startswith(_STAGES)}
    of_softmax = ("amax.default" in before or "exp.default" in before) and "sum.dim_IntList" in names
    return not (shared or (of_softmax and "amax.default" not in names))


def models() -> Iterator[tuple[str, Callable[[], torch.nn.Module], tuple[int, ...], dict[str, Any]]]:
    """Name, constructor, input shape, and options of the forward of each model."""
    import_torchvision()
    import torchvision
    import transformers as hf

    for name in (*_VISION, *_VISION_TRANSFORMERS):
        yield name, getattr(torchvision.models, name), _IMAGE, {}
    bert = hf.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    llama = hf.LlamaConfig(
        hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8
    )
    yield "bert_large", lambda: hf.BertModel(bert), _TOKENS, {}
    yield "gpt2", lambda: hf.GPT2LMHeadModel(hf.GPT2Config()), _TOKENS, {}
    yield "a small Llama", lambda: hf.LlamaForCausalLM(llama), _TOKENS, {"use_cache": False}


def main() -> None:
    """Print the table."""
    description = (__doc__ or "").split("\n\n", maxsplit=2)
    print(f"# What torch.compile fuses\n\n{description[0]}\n\n{description[2].strip()}\n")
    print(f"PyTorch {torch.__version__}. Calls of libraries stay as they are and are not counted.\n")
    print("| model | operations | kernels by Inductor | by the rules | difference | bytes left by the rules |")
    print("| --- | --- | --- | --- | --- | --- |")
    differences = []
    for name, build, shape, options in models():
        model = build().eval()
        tokens = shape == _TOKENS
        inputs = torch.zeros(shape, dtype=torch.long) if tokens else torch.zeros(shape)
        written = inductor_kernels(model, inputs, **options)
        network = joulecast.extract(model, shape, precision="fp32")
        loops = np.array([role_of(e.operation) != "call" and not e.operation.is_identity for e in network])
        counts = np.array([entry.count for entry in network]) * loops
        moved = counts * [entry.operation.bytes_read + entry.operation.bytes_written for entry in network]
        fusion = fusion_of(network)
        by_rules = round(float(counts @ fusion.kernels))
        differences.append(abs(by_rules / written - 1))
        print(
            f"| {name} | {counts.sum()} | {written} | {by_rules} | {100 * (by_rules / written - 1):+.0f} % "
            f"| {100 * moved @ fusion.traffic / moved.sum():.0f} % |",
            flush=True,
        )
    print(f"\nMean absolute difference: {100 * np.mean(differences):.0f} %.")


if __name__ == "__main__":
    main()
