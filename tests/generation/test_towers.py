"""Images of prompts: the towers that read them, against the classes of transformers, and what they cost requests."""

import pytest

import joulecast
from joulecast.extraction.models.transformers_models import import_transformers
from joulecast.generation.decoder import Projection
from joulecast.generation.engines import ENGINES
from joulecast.generation.models import find_decoder
from joulecast.generation.parallel import ALONE, Parallel
from joulecast.generation.towers import find_images

SEEING = "Qwen/Qwen3-VL-8B-Instruct"


def images(model, *sizes):
    return find_images(model, find_decoder(model), sizes)


def built(model):
    """The tower as transformers builds it, without memory."""
    torch = pytest.importorskip("torch")
    import_transformers()
    from transformers.models.gemma3 import configuration_gemma3, modeling_gemma3
    from transformers.models.llama4 import configuration_llama4, modeling_llama4
    from transformers.models.qwen2_5_vl import configuration_qwen2_5_vl, modeling_qwen2_5_vl
    from transformers.models.qwen3_vl import configuration_qwen3_vl, modeling_qwen3_vl
    from transformers.models.siglip import modeling_siglip

    sizes = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}
    with torch.device("meta"):
        if "gemma" in model:
            seen = {**sizes, "patch_size": 14, "image_size": 896, "vision_use_head": False}
            config = configuration_gemma3.Gemma3Config(text_config={"hidden_size": 5376}, vision_config=seen)
            projection = modeling_gemma3.Gemma3MultiModalProjector(config)
            return [modeling_siglip.SiglipVisionModel(config.vision_config), projection]
        if "Llama" in model:
            wide = {"projector_input_dim": 4096, "projector_output_dim": 4096, "vision_output_dim": 4096}
            seen = {"hidden_size": 1408, "intermediate_size": 5632, "image_size": 336, **wide}
            config = configuration_llama4.Llama4Config(vision_config=seen, text_config={"hidden_size": 5120})
            projection = modeling_llama4.Llama4MultiModalProjector(config)
            return [modeling_llama4.Llama4VisionModel(config.vision_config), projection]
        if "2.5" in model:
            config = configuration_qwen2_5_vl.Qwen2_5_VLVisionConfig(hidden_size=1280, out_hidden_size=3584)
            return [modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel(config)]
        config = configuration_qwen3_vl.Qwen3VLVisionConfig(out_hidden_size=4096)
        return [modeling_qwen3_vl.Qwen3VLVisionModel(config)]


LLAMA = "meta-llama/Llama-4-Scout-17B-16E-Instruct"


@pytest.mark.parametrize("model", [SEEING, "Qwen/Qwen2.5-VL-7B-Instruct", "google/gemma-3-27b-it", LLAMA])
def test_layers_of_towers_are_those_of_transformers(model):
    tower = images(model, (512, 512)).tower
    ours = sum(
        len(modules) * part.outputs * part.inputs
        for decoder in (tower.blocks, tower.merging)
        for part, modules in decoder
        if isinstance(part, Projection)
    )
    # Biases and norms have one dimension, positions are looked up.
    theirs = sum(
        weight.numel()
        for module in built(model)
        for name, weight in module.named_parameters()
        if weight.dim() > 1 and "pos" not in name
    )
    assert ours == theirs


@pytest.mark.parametrize("size", [(1024, 1024), (768, 1000), (40, 100), (9000, 6000), (16, 1600)])
def test_images_become_as_many_tokens_as_the_processor_makes(size):
    import_transformers()
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    height, width = smart_resize(*size, factor=32, min_pixels=2**16, max_pixels=2**24)
    assert images(SEEING, size).tokens == height // 32 * (width // 32) + 2
    assert images("google/gemma-3-4b-it", size).tokens == 260


@pytest.mark.parametrize("size", [(336, 336), (200, 100), (500, 333), (2000, 500), (768, 1024), (9000, 6000)])
def test_llama_reads_tiles_of_the_grid_that_its_processor_takes(size):
    torch = pytest.importorskip("torch")
    import_transformers()
    from transformers.models.llama4.image_processing_llama4 import get_best_fit

    grids = [(336 * rows, 336 * columns) for rows in range(1, 17) for columns in range(1, 16 // rows + 1)]
    height, width = (int(side) // 336 for side in get_best_fit(size, torch.tensor(grids), False))
    # 144 tokens of each tile, and one behind it; then those of the whole image, between its marks.
    whole = 144 + 3
    assert images(LLAMA, size).tokens == (whole if height * width == 1 else height * width * 145 + whole)


def test_a_tower_multiplies_patches_with_its_weights_and_attends_to_the_whole_image():
    reading = images(SEEING, (1024, 1024))
    network = reading.network(ENGINES["vllm"], ALONE)
    done = dict.fromkeys(("linear", "attention"), 0)
    for entry in network:
        if entry.operation.kind in done:
            done[entry.operation.kind] += entry.count * entry.operation.flops
    # 4,096 patches, each through 27 layers, and 1,024 tokens through four mergers.
    layer = 4 * 1152**2 + 2 * 1152 * 4304
    assert done["linear"] == 2 * (4096 * (27 * layer + 1536 * 1152) + 4 * 1024 * (4608**2 + 4608 * 4096))
    assert done["attention"] == 27 * 2 * 2 * 4096**2 * 1152
    two = images(SEEING, (1024, 1024), (1024, 1024))
    assert two.network(ENGINES["vllm"], ALONE).calls == 2 * network.calls
    assert two.tokens == 2 * reading.tokens == 2 * 1026
    halves = sum(
        e.count * e.operation.flops
        for e in reading.network(ENGINES["vllm"], Parallel(2))
        if e.operation.kind == "attention"
    )
    assert halves == done["attention"] / 2


@pytest.mark.parametrize("output", [1, 200])
def test_requests_wait_for_the_images_of_all(output):
    asked = {"batch": 16, "output_tokens": output}
    plain = joulecast.predict_generation(SEEING, "H100 SXM", prompt_tokens=100 + 1026, **asked)
    seen = joulecast.predict_generation(SEEING, "H100 SXM", prompt_tokens=100, images=[(1024, 1024)], **asked)
    assert seen.prompt_tokens == plain.prompt_tokens
    assert seen.image_tokens == 1026
    assert seen.latency_s == pytest.approx(plain.latency_s + 16 * seen.reading_images.time_s)
    assert seen.latency_s == pytest.approx(16 * output / seen.tokens_per_s)
    assert seen.time_to_first_token_s >= plain.time_to_first_token_s + seen.reading_images.time_s
    assert seen.energy_per_request_j == pytest.approx(plain.energy_per_request_j + seen.reading_images.energy_j)
    # About 576 million parameters in 16 bits.
    assert seen.memory.weights_bytes - plain.memory.weights_bytes == pytest.approx(2 * 576e6, rel=0.01)
    assert any("images" in note for note in plain.notes)


@pytest.mark.parametrize("gpu", ["H100 SXM", "2x H100 SXM"])
def test_simulations_and_choices_read_images_as_predictions_do(gpu):
    asked = {"prompt_tokens": 200, "output_tokens": 200, "images": [(768, 1024)]}
    one = joulecast.predict_generation(SEEING, gpu, batch=16, **asked)
    traffic = joulecast.simulate_serving(SEEING, gpu, concurrency=16, duration_s=180, warmup_s=20, **asked)
    assert traffic.tokens_per_s == pytest.approx(one.tokens_per_s, rel=0.03)
    assert traffic.energy_per_token_j == pytest.approx(one.energy_per_token_j, rel=0.03)
    assert any("images" in note for note in traffic.notes)
    ways = joulecast.best_generation(SEEING, gpus=[gpu], batches=(16,), clocks=(1980,), **asked)
    (way,) = (way for way in ways.rows if way.tensor_parallel == one.gpus)
    assert way.energy_per_token_j == pytest.approx(one.energy_per_token_j)
    # A request alone: its images, then the step that reads its prompt, then steps that decode.
    alone = joulecast.simulate_serving(SEEING, gpu, requests=0.2, burstiness=0, duration_s=20, **asked)
    text = {**asked, "prompt_tokens": 200 + one.image_tokens, "images": None}
    plain = joulecast.simulate_serving(SEEING, gpu, requests=0.2, burstiness=0, duration_s=20, **text)
    assert alone.ttft_s(0.5) == pytest.approx(plain.ttft_s(0.5) + one.reading_images.time_s)
    assert alone.tpot_s(0.5) == pytest.approx(plain.tpot_s(0.5))
