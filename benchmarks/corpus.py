"""The share of about 260 models that extraction covers. `python benchmarks/corpus.py` takes ten minutes.

Writes CORPUS.md. The models are those of torchvision, more than 40 families of timm, and more than 40 architectures of
transformers with two layers each, in inference and in training. The covered share is that of the FLOPs and bytes which
operations represent; the rest is listed as dropped. As a comparison, PyTorch's own counter (torch.utils.flop_counter)
counts the FLOPs of the products in the same forward.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from joulecast.errors import JoulecastError
from joulecast.extraction.job import Job
from joulecast.extraction.models import torchvision_models, transformers_models
from joulecast.extraction.models.named_models import build_timm
from joulecast.extraction.traced_models import traced
from joulecast.operations.inputs import Inputs
from joulecast.operations.kinds import KINDS
from joulecast.operations.network import Network
from joulecast.predictors.networks.costs import Coverage

OUT = Path(__file__).with_name("CORPUS.md")
LIBRARIES = ("torchvision", "timm", "transformers")
MODES = ("inference", "training")
IMAGE, VIDEO, TOKENS, SOUND = (2, 3, 224, 224), (1, 3, 16, 224, 224), (2, 64), (2, 16000)
LONG_TEXT = (2, 1024)
# Inputs of torchvision's models that do not take images of 224 pixels, by the prefix of their names.
SHAPES: dict[str, Any] = {
    **dict.fromkeys(("r3d", "mc3", "r2plus1d", "mvit", "s3d", "swin3d"), VIDEO),
    **dict.fromkeys(("inception", "quantized_inception"), (2, 3, 299, 299)),
    "raft": [(1, 3, 256, 256)] * 2,
}
DETECTORS = """
fasterrcnn_mobilenet_v3_large_320_fpn fasterrcnn_mobilenet_v3_large_fpn fasterrcnn_resnet50_fpn
fasterrcnn_resnet50_fpn_v2 fcos_resnet50_fpn keypointrcnn_resnet50_fpn maskrcnn_resnet50_fpn maskrcnn_resnet50_fpn_v2
retinanet_resnet50_fpn retinanet_resnet50_fpn_v2 ssd300_vgg16 ssdlite320_mobilenet_v3_large
""".split()  # noqa: SIM905 (one name per line would hide what they have in common)
TIMM = """
beit_base_patch16_224 cait_xxs24_224 coat_tiny coatnet_0_rw_224 convmixer_768_32 convnext_atto convnextv2_atto
crossvit_tiny_240 cspresnet50 davit_tiny deit_tiny_patch16_224 densenet121 dla34 dm_nfnet_f0 dpn68 edgenext_xx_small
efficientformer_l1 efficientvit_b0 eva02_tiny_patch14_224 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnet_100
gmlp_s16_224 hgnet_tiny hrnet_w18_small inception_next_tiny inception_v4 levit_128s maxvit_tiny_tf_224 mixer_s32_224
mobilenetv4_conv_small mobileone_s0 mobilevit_xxs mvitv2_tiny nest_tiny pit_ti_224 poolformer_s12 pvt_v2_b0 regnety_002
repvgg_a0 res2net50_26w_4s resmlp_12_224 resnetv2_50 rexnet_100 selecsls42b sequencer2d_s skresnet18
swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 tf_efficientnet_b0 tiny_vit_5m_224 tnt_s_patch16_224 tresnet_m
twins_pcpvt_small visformer_tiny vit_tiny_patch16_224 volo_d1_224 xcit_nano_12_p16_224
""".split()  # noqa: SIM905 (one name per line would hide what they have in common)
TRANSFORMERS = """
albert bart bert big_bird blenderbot bloom clip_text_model clip_vision_model ctrl convbert convnext convnextv2 cvt
data2vec-text deberta deberta-v2 deepseek_v3 deit dinov2 distilbert electra ernie falcon gemma gemma2 gemma3_text
glm4_moe gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoe layoutlm led llama longformer mamba mamba2
mbart mistral mixtral mobilebert modernbert mpnet mpt nystromformer olmo2 olmoe opt pegasus phi phi3 pvt_v2 qwen2
qwen2_moe qwen3 qwen3_moe regnet rembert resnet roberta roformer rwkv segformer squeezebert stablelm starcoder2 swin
switch_transformers t5 vit vit_mae wav2vec2 xglm xlnet yolos
""".split()  # noqa: SIM905
EXPERTS = ("glm4_moe", "gpt_oss", "granitemoe", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "deepseek_v3")
"""Mixtures of experts for whose products PyTorch has only kernels in bf16."""
ASSUMED = {
    "switch_transformers": {"experts": "uniform"},
    **{name: {"boxes": 100, "box_side": 100} for name in DETECTORS},
}
"""Assumptions about models that make decisions by values."""
LAYERS = ("num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")


@dataclass(frozen=True)
class Case:
    """One model of the corpus in one mode.

    Args:
        library: Library of the model.
        name: Name of the model in this library.
        mode: inference or training.
    """

    library: str
    name: str
    mode: str

    def built(self) -> tuple[torch.nn.Module, Any]:
        """The model without weights, and the shape of its input."""
        if self.library == "torchvision":
            shape = next((s for start, s in SHAPES.items() if self.name.startswith(start)), IMAGE)
            return torchvision_models.build(self.name), shape
        if self.library == "timm":
            model: Any = build_timm(f"timm/{self.name}")
            return model, (2, *model.default_cfg["input_size"])
        config = transformers_models.import_transformers().CONFIG_MAPPING[self.name]()
        for layers in LAYERS:
            if isinstance(getattr(config, layers, None), int) and not hasattr(config, "depths"):
                setattr(config, layers, 2)
        if hasattr(config, "layerdrop"):
            config.layerdrop = 0.0  # otherwise, training skips layers at random
        model = transformers_models.from_config(config)
        if model.main_input_name == "pixel_values":
            size = getattr(config, "image_size", 224)
            return model, (2, 3, *(size if isinstance(size, list | tuple) else (size, size)))
        if model.main_input_name == "input_values":
            return model, SOUND
        return (
            model,
            LONG_TEXT if self.name == "big_bird" else TOKENS,
        )  # for shorter sequences it does not use sparse attention


@dataclass(frozen=True)
class Result:
    """The result of a case.

    Args:
        case: The model and mode.
        network: Its operations; None if extraction refuses it.
        error: The error of the extraction.
        counted_flops: FLOPs of its products in a forward, by PyTorch's own counter; None if the counter does not run.
    """

    case: Case
    network: Network | None
    error: str = ""
    counted_flops: int | None = None

    @property
    def coverage(self) -> Coverage:
        """Coverage of the network."""
        return Coverage() if self.network is None else Coverage.of(self.network)

    @property
    def product_flops(self) -> int:
        """FLOPs of convolutions, matrix products and attention in the forward, by the table of kinds."""
        entries = () if self.network is None else self.network.entries
        return sum(e.count * e.operation.forward_flops for e in entries if KINDS[e.operation.kind].tensor_cores)


def cases(library: str) -> Iterator[Case]:
    """All models of a library in both modes."""
    names = torchvision_models.all_names() if library == "torchvision" else TIMM if library == "timm" else TRANSFORMERS
    for name in names:
        for mode in MODES:
            yield Case(library, name, mode)


def result_of(case: Case) -> Result:
    """Extract one model."""
    precision = "bf16" if case.name in EXPERTS else "default"
    job = Job(mode=case.mode, precision=precision, assume=ASSUMED.get(case.name))
    try:
        model, shape = case.built()
        network = traced(model, Inputs.of(shape), job, case.name)
    except JoulecastError as error:
        return Result(case, None, str(error).splitlines()[0])
    return Result(case, network, counted_flops=_counted_flops(model, shape) if case.mode == "inference" else None)


def _counted_flops(model: torch.nn.Module, shape: Any) -> int | None:
    """FLOPs of a forward by PyTorch's counter, on the meta device and without code of joulecast."""
    tokens = getattr(model, "main_input_name", "") == "input_ids"
    shapes = shape if isinstance(shape, list) else [shape]
    dtype = torch.int64 if tokens else torch.float32
    inputs = [torch.zeros(s, dtype=dtype, device="meta") for s in shapes]
    given = {}
    if tokens and getattr(model.config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = inputs[0]
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), counter:
            model.eval().to("meta")(*inputs, **given)
    except Exception:  # noqa: BLE001 (whatever a model raises on the meta device by itself)
        return None
    return counter.get_total_flops()


def table(results: list[Result]) -> Iterator[str]:
    """The report as Markdown."""
    yield "| library | mode | models | extracted | fully covered | FLOPs covered | bytes covered |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for library in (*LIBRARIES, "all"):
        for mode in MODES:
            mine = [r for r in results if library in (r.case.library, "all") and r.case.mode == mode]
            extracted = [r for r in mine if r.network is not None]
            covered = sum(not r.coverage for r in extracted)
            flops, moved = (covered_share(extracted, what) for what in ("flops", "moved_bytes"))
            yield f"| {library} | {mode} | {len(mine)} | {len(extracted)} | {covered} | {flops:.2%} | {moved:.2%} |"
    compared = [(r, r.counted_flops) for r in results if r.counted_flops]
    equal = sum(abs(r.product_flops / counted - 1) < 0.001 for r, counted in compared)
    yield f"\nFLOPs of products equal PyTorch's counter for {equal} of {len(compared)} models; the others:\n"
    yield "| model | ours over PyTorch's |\n| --- | --- |"
    for result, counted in compared:
        if abs(result.product_flops / counted - 1) >= 0.001:
            yield f"| {result.case.library}/{result.case.name} | {result.product_flops / counted:.4f} |"
    dropped: Counter[str] = Counter()
    for result in results:
        dropped.update({each.name for each in result.coverage.uncovered})
    yield "\n## Not covered\n\n| operator | models | largest share of a model's bytes |\n| --- | --- | --- |"
    for name, models in dropped.most_common():
        yield f"| {name} | {models} | {max(_share_of(r, name) for r in results):.2%} |"
    yield "\n## Refused\n\n| model | mode | error |\n| --- | --- | --- |"
    for result in results:
        if result.network is None:
            yield f"| {result.case.library}/{result.case.name} | {result.case.mode} | {result.error[:160]} |"


def covered_share(results: list[Result], what: str) -> float:
    """Share of all FLOPs or bytes of these networks that is covered."""
    missing = sum(getattr(each, what) or 0 for r in results for each in r.coverage.uncovered)
    listed = sum(_listed(r.network, what) for r in results if r.network is not None)
    return listed / max(1, listed + missing)


def _listed(network: Network, what: str) -> int:
    if what == "flops":
        return network.flops
    return sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in network)


def _share_of(result: Result, name: str) -> float:
    missing = sum(each.moved_bytes or 0 for each in result.coverage.uncovered)
    mine = sum(each.moved_bytes or 0 for each in result.coverage.uncovered if each.name == name)
    return mine / max(1, missing + (0 if result.network is None else _listed(result.network, "moved_bytes")))


def main(libraries: list[str]) -> None:
    """Extract the corpus, or one library of it, and write the report."""
    warnings.simplefilter("ignore")
    results = []
    for library in libraries or LIBRARIES:
        for case in cases(library):
            results.append(result_of(case))
            if results[-1].coverage or results[-1].network is None:
                print(
                    case.library, case.name, case.mode, results[-1].error or results[-1].coverage.share_text, flush=True
                )
    lines = [
        "# How much of some 260 models is covered",
        "",
        "Made by `python benchmarks/corpus.py`.",
        "",
        *table(results),
    ]
    if not libraries:
        OUT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
