"""Image pipelines, against published numbers of parameters and arithmetic."""

import math
import re
import shutil

import pytest
from documented import ROOT

from conftest import benchmark
from joulecast import predict_image
from joulecast.errors import InputError
from joulecast.extraction.cache import digest
from joulecast.generation.images import parts
from joulecast.generation.images.decoders import pieces
from joulecast.generation.images.layers import TRANSPOSED, Layers, parameters_of, strided_cycles
from joulecast.generation.images.pipelines import PIPELINES, encoded
from joulecast.generation.images.sequence_parallel import DividedNetwork, Split
from joulecast.hardware import find_gpu
from joulecast.operations.network import Network
from joulecast.predictors.networks.predictor import at_clock
from joulecast.units import si
from joulecast.zoo import find_predictor

with benchmark("template_version") as template_version:
    pass


def denoiser(name, images=1, grid=(64, 64)):
    return PIPELINES[name].denoised(images, grid, "bf16")


VIDEO = {"wan": (21, 30, 52), "cogvideox": (13, 30, 45), "hunyuan_video": (33, 45, 80)}
# Millions of parameters, as cards and papers give them. SD 3.5 Medium has 2,470 with its table of positions,
# 384 x 384 x 1536, of which nothing is computed.
DENOISERS = {
    "sd3_5_large": 8057, "sd3_5_medium": 2470 - 226, "flux_1_dev": 11901, "pixart_sigma": 611, "hunyuan_dit": 1500,
    "sana_1_6b": 1604, "sana_1_5_4_8b": 4720, "wan_2_1_1_3b": 1419, "wan_2_1_14b": 14288, "cogvideox_2b": 1694,
    "cogvideox_5b": 5570, "hunyuan_video": 12821, "sd_1_5": 859.5, "sdxl": 2567.5,
}  # fmt: skip
ENCODERS = {"umt5_xxl": (512, 5681), "gemma_2_2b": (300, 2614), "clip_l": (77, 123), "t5_xxl": (256, 4762)}


@pytest.mark.parametrize("name", [*DENOISERS, *ENCODERS])
def test_models_have_the_published_number_of_parameters(name):
    if name in ENCODERS:
        tokens, millions = ENCODERS[name]
        network = encoded(name, 1, tokens, "bf16")
    else:
        millions = DENOISERS[name]
        network = denoiser(name, 1, *(grid for start, grid in VIDEO.items() if name.startswith(start)))
    assert parameters_of(network) / 1e6 == pytest.approx(millions, rel=0.045 if name == "hunyuan_dit" else 0.005)


# Convolutions of 3 x 3 x 3 in the video decoders: two at the ends and in each block. CogVideoX's blocks have two norms,
# each with two convolutions of the 16 channels of latents; Wan enlarges by 3 x 3, and doubles frames by 3.
_PAIRS = [(512, 512)] * 6 + [(512, 256)] + [(256, 256)] * 7 + [(256, 128)] + [(128, 128)] * 3
_BLOCKS = 2 * 2 * 384**2 + 6 * 384**2 + (192 + 5 * 384) * 384 + 6 * 192**2 + 6 * 96**2
# SANA's, at each size: a convolution that enlarges, and three blocks. Of these 9 are two convolutions of 3 x 3, and 9
# are q, k, v (3 c^2), depthwise 5 x 5 and groups of 32 channels (3 c x 57), out (2 c^2), and a feed-forward of 12 c^2.
_ENLARGING = 9 * (1024 * 1024 + 1024 * 512 + 512 * 512 + 512 * 256 + 256 * 128)
_ATTENDING = 3 * sum(17 * c**2 + 3 * c * 57 + 72 * c for c in (1024, 1024, 512))
# Pipeline -> latents, the first convolution of a piece, and parameters.
DECODERS = {
    "sdxl": ((128, 96), (2, 4, 128, 96), 49.5e6),  # As published.
    "sana_1_6b": (
        (32, 24),
        (2, 32, 32, 24),
        _ENLARGING + 3 * 18 * (512**2 + 256**2 + 128**2) + _ATTENDING + 9 * (32 * 1024 + 128 * 3),
    ),
    "wan_2_1_1_3b": (
        (3, 8, 12),
        (2, 16, 1, 8, 12),
        27 * (_BLOCKS + 16 * 384 + 96 * 3)
        + 9 * (2 * 384 * 192 + 192 * 96)
        + (2 * 3 * 384 * 768 + 4 * 384**2 + 192 * 384),
    ),
    "cogvideox_2b": (
        (13, 8, 12),
        (2, 16, 5, 8, 12),
        27 * (sum(i * o + o * o for i, o in _PAIRS) + 16 * 512 + 128 * 3)
        + 9 * (512**2 + 2 * 256**2)
        + (512 * 256 + 256 * 128 + sum(34 * (i + o) for i, o in _PAIRS)),
    ),
}


@pytest.mark.parametrize(
    ("pipeline", "latents", "first", "parameters"), [(k, *v) for k, v in DECODERS.items()], ids=DECODERS
)
def test_decoders_have_their_parameters_and_read_latents(pipeline, latents, first, parameters):
    network = PIPELINES[pipeline].decoded(2, latents, "bf16")
    assert parameters_of(network) == pytest.approx(parameters, rel=0.005 if len(latents) == 2 else 0.001)
    assert first == next(e.operation for e in network if e.operation.kind.startswith("conv")).input_shapes[0]
    if len(latents) == 2:
        last = [e.operation for e in network if e.operation.kind == "conv2d"][-1]
        assert last.output_shape == (2, 3, *(PIPELINES[pipeline].scale * side for side in latents))


def test_a_change_of_the_maker_outdates_templates_and_one_of_its_words_does_not(tmp_path):
    for path in (ROOT / "benchmarks").glob("template_*.py"):
        shutil.copy(path, tmp_path)
    changed = tmp_path / "template_layout.py"
    text = changed.read_text("utf-8")
    changed.write_text(f"{text}\n# A comment.\n".replace('"""', '"""Said better: ', 1), "utf-8")
    assert template_version.maker(tmp_path) == template_version.maker()
    changed.write_text(f"{text}\nMORE = 1\n", "utf-8")
    assert template_version.maker(tmp_path) != template_version.maker()


def test_templates_hold_what_extraction_makes_of_their_operators():
    names = {name for each in PIPELINES.values() for name in (each.name, each.decoder, *each.encoders)}
    assert sorted(path.name.removesuffix(".json.xz") for path in parts.FOLDER.iterdir()) == sorted(names)
    pinned = dict(re.findall(r"^([\w-]+)==(.+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    libraries = {"torch": pinned["torch"], "diffusers": "0.35.2", "transformers": pinned["transformers"]}
    made = {name: parts.load(name) for name in names}
    outdated = [
        name
        for name, each in made.items()
        if (each.libraries, each.digest, each.maker) != (libraries, digest(each.operators), template_version.maker())
    ]
    assert not outdated, f"python benchmarks/template_parts.py {' '.join(outdated)}"
    assert sum(path.stat().st_size for path in parts.FOLDER.iterdir()) < 0.15e6


@pytest.mark.parametrize(
    ("name", "grid", "split", "keys"),
    [
        ("flux_1_dev", (64, 64), Split(), {(1, 24, 4096 + 512, 128): 19 + 38}),
        ("wan_2_1_1_3b", VIDEO["wan"], Split(), {(1, 12, 21 * 30 * 52, 128): 30, (1, 12, 512, 128): 30}),
        ("cogvideox_5b", VIDEO["cogvideox"], Split(), {(1, 48, 226 + 13 * 30 * 45, 64): 42}),
        # Text that cannot be divided is seen once.
        ("sd3_5_medium", (64, 64), Split(4, 1), {(1, 6, 4096 + 333, 64): 24, (1, 6, 4096, 64): 13}),
    ],
)
def test_attention_sees_the_whole_image_or_video_and_its_text(name, grid, split, keys):
    pipeline = PIPELINES[name]
    step = pipeline.denoised(1, grid, "bf16", split)
    found = {e.operation.input_shapes[1]: e.count for e in step if e.operation.kind == "attention"}
    assert found == keys


# The FLOPs that tracing UNet2DConditionModel of diffusers 0.42.1 counts for a prompt and an empty one.
@pytest.mark.parametrize(("name", "flops", "blocks"), [("sdxl", 13538372095232, 70), ("sd_1_5", 1608881245440, 16)])
def test_a_u_net_computes_what_diffusers_computes(name, flops, blocks):
    pipeline = PIPELINES[name]
    *_, step, decoder = pipeline.networks(1, None, pipeline.height, pipeline.width, "bf16")
    # A bias that PyTorch adds afterwards is counted with its layer, too.
    added = [e for e in step if e.operation.kind == "add" and len(e.operation.input_shapes[1]) == 1]
    assert _flops(step) - _flops(added) == pytest.approx(flops, rel=1e-6)
    # Each block attends to the image and to the text.
    assert sum(e.count for e in step if e.operation.kind == "attention") == 2 * blocks
    last = [e.operation for e in step if e.operation.kind == "conv2d"][-1]
    assert last.output_shape[1:] == decoder.entries[0].operation.input_shapes[0][1:]


# Time of an image on an A100 SXM 80GB with PyTorch's attention: huggingface/diffusion-fast (30 steps, bf16), and
# fal-ai/stable-diffusion-benchmarks (50 steps, fp16, torch 2.1). Nothing was fitted to them.
@pytest.mark.parametrize(
    ("name", "options", "seconds", "within"),
    [("sdxl", {"steps": 30}, 3.315, 0.1), ("sd_1_5", {"precision": "fp16"}, 1.604, 0.25)],
)
def test_published_times_of_u_nets(name, options, seconds, within):
    found = predict_image(name, "A100 SXM4 80GB", **options)
    assert found.time_per_image_s == pytest.approx(seconds, rel=within)


def test_linear_attention_of_sana_costs_the_same_for_each_token():
    small, large = (denoiser("sana_1_6b", 2, (side, side)) for side in (32, 64))
    flops = [sum(e.count * e.operation.flops for e in step if e.operation.kind == "matmul") for step in (small, large)]
    # 20 blocks, 70 heads: 33 rows of values (one of ones) times 32 of keys, and that times queries, for each token.
    assert flops[0] == 2 * 20 * 70 * 1024 * 2 * (33 * 32 + 33 * 32)
    assert flops[1] == 4 * flops[0]


def pictures(network):
    """Frames of 64 x 96 pixels that the last convolution of a decoder gives at a time -> how often it does."""
    last = [e for e in network if e.operation.output_shape[1] == 3 and e.operation.kind == "conv3d"]
    assert {(*e.operation.output_shape[:2], *e.operation.output_shape[3:]) for e in last} == {(1, 3, 64, 96)}
    return {e.operation.output_shape[2]: e.count for e in last}


def test_each_latent_frame_but_the_first_becomes_four():
    one, two, three, four = (PIPELINES["wan_2_1_1_3b"].decoded(1, (frames, 8, 12), "bf16") for frames in (1, 2, 3, 4))
    assert pictures(three) == {1: 1, 4: 2}
    # Each later latent frame costs the same, and the first of them less: it has fewer frames before it.
    assert _flops(four) - _flops(three) >= _flops(three) - _flops(two) > 3 * _flops(one)


@pytest.mark.parametrize(
    ("latents", "pieces"), [(13, {9: 1, 8: 5}), (12, {8: 6}), (3, {9: 1}), (2, {8: 1}), (1, {1: 1})]
)
def test_cogvideox_decodes_two_latent_frames_at_a_time(latents, pieces):
    assert pictures(PIPELINES["cogvideox_2b"].decoded(1, (latents, 8, 12), "bf16")) == pieces


def test_a_patch_of_cogvideox_1_5_holds_two_latent_frames():
    pipeline = PIPELINES["cogvideox1_5_5b"]
    _, step, decoder = pipeline.networks(1, 81, 768, 1360, "bf16")
    # 81 frames are 21 latent frames, which are padded to 11 pairs; the prompt and the empty one are one batch.
    found = {e.operation.input_shapes[0]: e.count for e in step if e.operation.kind == "attention"}
    assert found == {(2, 48, 226 + 11 * 48 * 85, 64): 42}
    assert decoder.input_shape == {"latents": (1, 21, 96, 170)}


def test_hunyuan_video_is_decoded_in_tiles():
    network = PIPELINES["hunyuan_video"].networks(1, 129, 720, 1280, "bf16")[-1]
    first = [e for e in network if e.operation.kind == "conv3d" and e.operation.output_shape[1] == 16]
    found = {e.operation.input_shapes[0]: e.count for e in first}
    # 33 x 90 x 160 latents in tiles of 5 x 32 x 32, which start every 3 x 24 x 24 latents.
    assert sum(found.values()) == 11 * 4 * 7
    assert found[1, 16, 5, 32, 32] == 10 * 3 * 6
    assert found[1, 16, 3, 18, 16] == 1
    # What fits into a tile is not cut, in time and in space.
    assert [*pieces("hunyuan_video_decoder", (4, 32, 32))] == [("4", (32, 32), 1)]


def test_residuals_of_sd_3_5_stay_as_a_convolution_wrote_them():
    # Two norms and two sums in each of 38 blocks, and the last norm; both results of attention are parts of a tensor,
    # and the last block computes no text.
    step = denoiser("sd3_5_large", 2)
    copies = {e.operation.input_shapes[0]: e.count for e in step if e.operation.kind == "copy"}
    assert copies[2, 2432, 4096] == 4 * 38 + 1
    assert (copies[2, 4096, 2432], copies[2, 333, 2432]) == (38, 37)
    added = [e for e in step if e.operation.kind == "add" and e.operation.input_shapes[1:] == ((2432,),)]
    assert sum(e.count for e in added) == 38 + 37  # biases of the layers that read these parts
    flux = {e.operation.input_shapes[0]: e.count for e in denoiser("flux_1_dev", 2) if e.operation.kind == "copy"}
    assert (flux[2, 4096, 3072], flux[2, 512, 3072]) == (19 + 1, 19)  # the last norm reads a part, too
    # Cycles of 132 multiprocessors: 1.8 for each element of a residual, 1.5 for each of joined heads.
    cycles = {operation.kind: value for operation, value in strided_cycles(step, 132).items() if value > 1e5}
    assert cycles == {"copy": 1.8 * 2 * 4096 * 2432 / 132, "cat": 1.5 * 2 * (4096 + 333) * 2432 / 132}
    # In FLUX's these are tables of rotary positions alone, whose pairs are written beside each other.
    of_flux = strided_cycles(denoiser("flux_1_dev", 2), 132)
    tables = {(4608, 2, half): 1.8 * 4608 * 2 * half / 132 for half in (8, 28)}
    assert {operation.input_shapes[0]: value for operation, value in of_flux.items()} == pytest.approx(tables)


def test_a_transposed_copy_takes_as_long_as_pytorch_s_was_measured():
    # 268 million elements in 1.98 ms on an H100 (pytorch/pytorch issue 113560), which runs at 1.98 GHz with so little
    # to do. A copy that reads and writes in rows is ten times as quick there.
    layers = Layers("bf16")
    layers.add(f"residual.{TRANSPOSED}", "copy", (1, 8192, 32768))
    layers.add("rows", "copy", (1, 32768, 8192))
    predictor = find_predictor(find_gpu("H100 SXM"), "inference")
    step = at_clock(DividedNetwork(predictor, Network(layers.entries, name="copies"), 700.0), 1980).prediction()
    transposed, rows = (cost.device_time_s for cost in step.operations)
    assert transposed == pytest.approx(1.98e-3, rel=0.15)
    assert transposed > 2 * rows


@pytest.mark.parametrize(("ulysses", "ring"), [(8, 1), (4, 2), (1, 8)])
def test_gpus_share_the_attention(ulysses, ring):
    pipeline = PIPELINES["flux_1_dev"]
    alone, shared = (
        pipeline.networks(1, None, 1024, 1024, "bf16", Split(*degrees))[-2] for degrees in ((1, 1), (ulysses, ring))
    )
    whole, part = ({kind: _flops(step, kind) for kind in ("attention", "linear")} for step in (alone, shared))
    assert part["attention"] * 8 == whole["attention"]  # 4096 + 512 tokens divide by 8
    assert part["linear"] * 8 == pytest.approx(whole["linear"], rel=0.01)  # embeddings of the time are computed by all
    calls = {kind: sum(e.count for e in shared if e.operation.kind == kind) for kind in ("all_to_all", "all_gather")}
    # Four exchanges of an attention; keys and values go to each of the others; pixels come together at the end.
    assert calls == {"all_to_all": 4 * 57 * (ulysses > 1), "all_gather": 2 * 57 * (ring - 1) + 1}


def test_more_gpus_are_quicker_and_cost_more():
    one, two, four = (predict_image("flux_1_dev", "H100 SXM", batch=8, steps=2, gpus=gpus) for gpus in (None, 2, 4))
    assert one.time_per_image_s > two.time_per_image_s > four.time_per_image_s
    assert one.energy_per_image_j < two.energy_per_image_j < four.energy_per_image_j
    assert four == predict_image("flux_1_dev", "4x H100 SXM", batch=8, steps=2, ulysses=4)
    assert "on 4x NVIDIA H100" in str(four)
    assert four.power_w == pytest.approx(four.energy_per_image_j / four.time_per_image_s)


def test_watts_of_parts_are_those_of_all_boards():
    found = predict_image("sd3_5_medium", "2x H100")
    (denoiser,) = (line for line in str(found.described()).splitlines() if line.startswith("denoiser"))
    assert f"  {si(2 * found.denoise.power_w, 'W')}  " in denoiser
    assert any("H100 was taken for H100 SXM" in note for note in found.notes)
    assert not any("this is for one" in note for note in predict_image("sd3_5_medium", "p5.48xlarge").notes)
    with pytest.raises(InputError, match="two numbers"):
        predict_image("sd3_5_medium", "2x H100", gpus=4)


def test_an_interval_is_around_the_prediction():
    found = predict_image("sd3_5_medium", "H100 SXM", steps=2)
    wide, narrow = (found.interval(level).energy_per_image_j for level in (0.9, 0.5))
    assert wide[0] < narrow[0] < found.energy_per_image_j < narrow[1] < wide[1]
    # 1.645 and 0.674 standard deviations of the logarithm.
    assert math.log(wide[1] / wide[0]) / math.log(narrow[1] / narrow[0]) == pytest.approx(1.645 / 0.674, rel=0.001)
    assert found.interval().power_w[1] <= 700


def test_a_video_costs_by_its_frames():
    def video(**options):
        return predict_image("wan_2_1_1_3b", "H100 SXM", **options)

    default, short, still = video(), video(frames=41), video(frames=1)
    assert (default.frames, default.height, default.width, default.steps) == (81, 480, 832, 50)
    assert default.energy_per_image_j > 2 * short.energy_per_image_j > 2 * still.energy_per_image_j
    # UMT5, transformer and decoder stay in memory: 2 bytes for each parameter.
    assert default.weights_bytes == pytest.approx(2 * (5681e6 + 1419e6 + 73.3e6), rel=0.001)
    # A forward is 30 blocks over 32,760 tokens, of which attention alone is 198 TFLOP; a step is two forwards.
    assert default.denoise.time_s > 30 * 4 * 32760**2 * 1536 / 989.4e12
    assert default.time_per_image_s > default.denoise_calls * default.denoise.time_s == 100 * default.denoise.time_s
    assert "81 frames" in str(default)
    assert "per video" in str(default)


def _flops(network, *kinds):
    return sum(e.count * e.operation.flops for e in network if not kinds or e.operation.kind in kinds)


def test_parts_add_up_to_an_image_and_fused_operations_are_quicker():
    found = predict_image("pixart_sigma", "H100 SXM", batch=2, steps=10)
    text = sum(each.time_s for each in found.text)
    whole = text + 10 * found.denoise.time_s + found.decode.time_s
    assert found.time_per_batch_s == pytest.approx(whole)
    assert found.time_per_image_s == pytest.approx(whole / 2)
    assert found.power_w == pytest.approx(found.energy_per_image_j / found.time_per_image_s)
    # With guidance each image is computed twice; T5, transformer and decoder stay in memory.
    assert found.denoise.input_shape == {"patches": (4, 64, 64)}
    assert found.weights_bytes == pytest.approx(2 * (4762e6 + 611e6 + 49.5e6), rel=0.005)
    eager, compiled = (predict_image("flux_1_dev", "H100 SXM", execution=name) for name in ("eager", "compiled"))
    assert compiled.denoise.time_s < eager.denoise.time_s


PUBLISHED = {
    "Stable Diffusion XL": ("sdxl", {}),
    "Stable Diffusion 1.5": ("sd_1_5", {"precision": "fp16"}),
    "Wan 2.1 1.3B": ("wan_2_1_1_3b", {"steps": 50}),
    "CogVideoX-2B": ("cogvideox_2b", {"steps": 50}),
    "CogVideoX-5B": ("cogvideox_5b", {"steps": 50}),
}


@pytest.mark.parametrize("shown", PUBLISHED)
def test_the_page_shows_what_is_predicted(shown):
    (row,) = re.findall(rf"^\| {re.escape(shown)},.*$", (ROOT / "docs/generation.md").read_text("utf-8"), re.MULTILINE)
    what, gpus, _, predicted = (cell.strip() for cell in row.strip("|").split("|"))
    name, asked = PUBLISHED[shown]
    steps = re.search(r"(\d+) steps", what)
    asked = asked | ({"steps": int(steps[1])} if steps else {})
    found = [predict_image(name, gpu, **asked).time_per_image_s for gpu in gpus.split("; ")]
    assert [float(each.removesuffix(" s")) for each in predicted.split("; ")] == pytest.approx(found, rel=0.03)
