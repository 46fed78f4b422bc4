"""Image pipelines, against published numbers of parameters and arithmetic."""

from __future__ import annotations

import pytest

from joulecast import predict_image
from joulecast.errors import InputError, UnknownNameError
from joulecast.generation.images.autoencoders import Autoencoder
from joulecast.generation.images.deep_compression import DeepCompression
from joulecast.generation.images.encoders import CLIP_L, gemma_2_2b, t5_xxl
from joulecast.generation.images.layers import parameters_of
from joulecast.generation.images.pipelines import PIPELINES


def denoiser(name, grid=(64, 64)):
    pipeline = PIPELINES[name]
    return pipeline.denoiser.network(1, grid, pipeline.text_tokens, "bf16")


@pytest.mark.parametrize(
    ("network", "millions"),
    [
        (denoiser("sd3_5_large"), 8057),
        # 2,470 with its table of positions, 384 x 384 x 1536, of which nothing is computed.
        (denoiser("sd3_5_medium"), 2470 - 226),
        (denoiser("flux_1_dev"), 11901),
        (denoiser("pixart_sigma"), 611),
        (denoiser("hunyuan_dit"), 1500),
        (denoiser("sana_1_6b"), 1604),
        (gemma_2_2b(300).network(1, "bf16"), 2614),
        (CLIP_L.network(1, "bf16"), 123),
        (t5_xxl(256).network(1, "bf16"), 4762),
        (Autoencoder(4).network(1, 512, 512, "bf16"), 49.5),
    ],
    ids=["sd3_5_large", "sd3_5_medium", "flux", "pixart", "hunyuan", "sana", "gemma", "clip", "t5", "decoder"],
)
def test_parts_have_the_published_number_of_parameters(network, millions):
    assert parameters_of(network) / 1e6 == pytest.approx(millions, rel=0.045 if millions == 1500 else 0.005)


def test_attention_of_flux_sees_image_and_text():
    step = denoiser("flux_1_dev")
    found = {e.operation.input_shapes[0]: e.count for e in step if e.operation.kind == "attention"}
    assert found == {(1, 24, 4096 + 512, 128): 19 + 38}
    # 57 blocks, two products of 4608 x 4608 x 128 in 24 heads.
    flops = sum(e.count * e.operation.flops for e in step if e.operation.kind == "attention")
    assert flops == 57 * 24 * 2 * 2 * 4608 * 4608 * 128


def test_linear_attention_of_sana_costs_the_same_for_each_token():
    small, large = (denoiser("sana_1_6b", (side, side)) for side in (32, 64))
    flops = [sum(e.count * e.operation.flops for e in step if e.operation.kind == "matmul") for step in (small, large)]
    # 20 blocks, 70 heads: 33 rows of values (one of ones) times 32 of keys, and that times queries, for each token.
    assert flops[0] == 20 * 70 * 1024 * 2 * (33 * 32 + 33 * 32)
    assert flops[1] == 4 * flops[0]


def test_the_decoder_of_sana_enlarges_32_times():
    network = DeepCompression(32).network(2, 1024, 768, "bf16")
    assert network.entries[-1].operation.output_shape == (2, 3, 1024, 768)
    assert network.entries[0].operation.input_shapes == ((2, 32, 32, 24),)
    # At each size: a convolution that enlarges, and three blocks. Of these 9 are two convolutions of 3 x 3, and 9 are
    # q, k, v (3 c^2), depthwise 5 x 5 and groups of 32 channels (3 c x 57), out (2 c^2), and a feed-forward of 12 c^2.
    enlarging = 9 * (1024 * 1024 + 1024 * 512 + 512 * 512 + 512 * 256 + 256 * 128)
    residual = 3 * 18 * (512**2 + 256**2 + 128**2)
    attending = 3 * sum(17 * c**2 + 3 * c * 57 + 72 * c for c in (1024, 1024, 512))
    ends = 9 * (32 * 1024 + 128 * 3)
    assert parameters_of(network) == pytest.approx(enlarging + residual + attending + ends, rel=0.001)


def test_the_decoder_ends_at_the_pixels():
    network = Autoencoder(16).network(2, 1024, 768, "bf16")
    assert network.entries[-1].operation.output_shape == (2, 3, 1024, 768)
    assert network.entries[0].operation.input_shapes == ((2, 16, 128, 96),)


def test_parts_add_up_to_an_image():
    found = predict_image("pixart_sigma", "H100 SXM", batch=2, steps=10)
    text = sum(each.time_s for each in found.text)
    whole = text + 10 * found.denoise.time_s + found.decode.time_s
    assert found.time_per_batch_s == pytest.approx(whole)
    assert found.time_per_image_s == pytest.approx(whole / 2)
    assert found.power_w == pytest.approx(found.energy_per_image_j / found.time_per_image_s)
    # With guidance each image is computed twice; T5, transformer and decoder stay in memory.
    assert found.denoise.input_shape == {"latents": (4, 4096, 16)}
    assert found.weights_bytes == pytest.approx(2 * (4762e6 + 611e6 + 49.5e6), rel=0.005)


def test_more_work_costs_more():
    def joules(**options):
        return predict_image("sd3_5_medium", "H100 SXM", **options).energy_per_image_j

    assert joules(steps=4) < joules(steps=8) < joules(steps=8, height=1536)
    assert joules(batch=4) < joules()
    large, medium = (predict_image(name, "H100 SXM") for name in ("sd3_5_large", "sd3_5_medium"))
    assert large.time_per_image_s > 2 * medium.time_per_image_s
    # A step of the large one computes 62 TFLOP; no H100 does that in less than 63 ms.
    assert large.denoise.time_s > 62.2e12 / 989.4e12


def test_fused_point_wise_operations_are_quicker():
    eager, compiled = (predict_image("flux_1_dev", "H100 SXM", execution=name) for name in ("eager", "compiled"))
    assert compiled.denoise.time_s < eager.denoise.time_s


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "sd99"}, "image pipeline"),
        ({"height": 1000}, "multiples of 16"),
        ({"model": "sana_1_6b", "height": 1040}, "multiples of 32"),
        ({"steps": 0}, "positive integer"),
        ({"precision": "fp8"}, "precision of a pipeline"),
        ({"gpu": "T4"}, "does not fit"),
        ({"execution": "quickly"}, "execution"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    arguments = {"model": "flux_1_dev", "gpu": "H100 SXM", **options}
    with pytest.raises((InputError, UnknownNameError), match=message):
        predict_image(**arguments)
