"""Whole training runs, held against arithmetic by hand."""

import math

import pytest

from joulecast import Operation, predict, predict_run
from joulecast.errors import InputError
from joulecast.hardware import find_gpu
from joulecast.operations.network import Network
from joulecast.runs.step import with_loss
from joulecast.runs.traffic import Traffic

BERT = ("bert_base", (64, 128))
PARAMETERS = 109_482_240  # of BERT-base, with its pooler
MEMORY = 768 * 2**20  # what CUDA itself needs


def run(gpu="8x H100 SXM", **options):
    return predict_run(*BERT, gpu, **{"samples": 6400, "precision": "bf16", **options})


def part(found, name):
    return {each.name: each for each in found.parts}[name]


def test_a_run_is_its_steps():
    one = run("H100 SXM", samples=1000, epochs=3)
    assert one.steps == math.ceil(3000 / 64)
    step = predict(*BERT, gpu="H100 SXM", mode="training", precision="bf16")
    computed = part(one, "forward").time_s + part(one, "backward").time_s
    assert computed == pytest.approx(one.steps * step.time_s)
    assert part(one, "forward").energy_j + part(one, "backward").energy_j == pytest.approx(one.steps * step.energy_j)
    assert sum(one.shares.values()) == pytest.approx(1)
    assert one.samples_per_s == pytest.approx(3000 / one.time_s)
    assert one.tokens_per_s == pytest.approx(128 * 3000 / one.time_s)
    assert run(samples=None, tokens=6400 * 128).steps == run().steps == 100


def test_no_board_draws_more_than_its_cap_where_it_sends_beside_computing():
    capped = run(recompute="full", power_limit_w=200)
    assert 0.999 * 200 < capped.energy_j / capped.time_s / 8 <= 200 * (1 + 1e-9)


def test_what_is_computed_again_has_the_predictor_of_the_forward():
    found = {}
    for predictor in ("any-gpu/transformer", "any-gpu/forest", "a30/forest-training", None):
        again = run("A30", precision="fp32", recompute="full", predictor=predictor)
        found[predictor] = part(again, "recomputing").time_s
        assert found[predictor] < part(again, "forward").time_s
    assert len(set(found.values())) == 3
    assert found["a30/forest-training"] == found[None]  # It predicts training alone.


def test_weights_that_modules_share_are_sent_and_held_once_without_a_step_too():
    # GPT-2's embedding of words is its last layer as well.
    plain, stepped = (predict_run("gpt2", (8, 128), "8x L4", samples=8, optimizer=each) for each in (None, "sgd"))
    assert plain.memory_bytes == stepped.memory_bytes
    assert part(plain, "communication") == part(stepped, "communication")


def test_energy_at_the_plug_price_and_carbon_by_hand():
    found = run("16x H100 SXM", price_per_hour={"H100 SXM": 2.5}, price_per_kwh=0.2, carbon=300, pue=1.25)
    wall_j = 2 * (466 + 512) * found.time_s + 1.15 * found.energy_j
    assert found.wall_energy_j == pytest.approx(wall_j)
    # PCI Express has no switches on a baseboard of their own, and one GPU of eight has an eighth of its server.
    for gpu, watts in (("8x L40S", 466), ("8x H100 PCIe", 466), ("L4", 466 / 8), ("2x H100 SXM", (466 + 512) / 4)):
        plain = run(gpu)
        assert plain.wall_energy_j == pytest.approx(watts * plain.time_s + 1.15 * plain.energy_j)
    kwh = 1.25 * wall_j / 3.6e6
    assert found.cost == pytest.approx(16 * found.time_s / 3600 * 2.5 + 0.2 * kwh)
    assert found.carbon_kg == pytest.approx(0.3 * kwh)
    said = {"cost: 2.5 for an hour of a GPU and 0.2 for a kWh", "carbon: 300 g CO2e for a kWh"}
    assert {*said, "with a PUE of 1.25 in cost and carbon"} <= {*found.notes}
    unpriced = run("L4", price_per_hour={"A30": 1.0})
    assert (unpriced.cost, unpriced.carbon_kg) == (None, None)
    assert "no cost: no price of an hour of NVIDIA L4 is known" in unpriced.notes
    interval = found.interval(0.9)
    for name in ("time_s", "energy_j", "wall_energy_j", "cost", "carbon_kg"):
        low, high = getattr(interval, name)
        assert low < getattr(found, name) < high
    assert found.interval(0.5).time_s[1] < interval.time_s[1]


def test_what_names_stand_for_is_told():
    found = run("2x H100", price_per_hour="AWS", carbon="DE")
    said = ("H100 was taken for H100 SXM", "cost: 6.88 for an hour of a GPU", "carbon: 381 g CO2e for a kWh")
    assert all(any(note.startswith(each) for note in found.notes) for each in said)
    assert not any(note.startswith(("cost", "carbon", "with a PUE")) for note in run("L4").notes)
    assert "carbon: g CO2e for a kWh of 2 hours" in run("L4", carbon=[300, 500]).notes


def test_memory_by_what_replicas_divide():
    """BERT in bf16 with AdamW: weights, gradients two moments of the same size, and gradients in buckets."""
    stored = learned = 2 * PARAMETERS
    held = {
        "none": stored + 4 * learned,
        "zero1": stored + 2 * learned + 2 * learned / 8,
        "zero2": stored + 2 * learned / 8 + 2 * learned / 8,
        "zero3": stored / 8 + learned / 8 + 2 * learned / 8,
    }
    memory = {name: run(sharding=name).memory_bytes for name in held}
    activations = memory["none"] - held["none"]
    assert activations > MEMORY
    for name, weights in held.items():
        assert memory[name] - weights == pytest.approx(activations, rel=0.02), name
    assert run("H100 SXM").memory_bytes - run("H100 SXM", recompute="full").memory_bytes > 1e8


def test_what_is_computed_again_is_a_forward():
    plain, again = run("H100 SXM"), run("H100 SXM", recompute="full")
    assert 0.7 < part(again, "recomputing").time_s / part(plain, "forward").time_s < 1.1
    assert part(again, "backward") == part(plain, "backward")
    attention = part(run("H100 SXM", recompute="selective"), "recomputing").time_s
    assert 0 < attention < part(again, "recomputing").time_s


def test_accumulated_gradients_are_summed_once():
    whole, four = run("8x A100 SXM4 80GB"), run("8x A100 SXM4 80GB", accumulation=4)
    assert four.layout.micro_shape((64, 128)) == (2, 128)
    one = predict("bert_base", (2, 128), "A100 SXM4 80GB", mode="training", precision="bf16")
    assert part(four, "forward").time_s + part(four, "backward").time_s == pytest.approx(100 * 4 * one.time_s)
    # The device steps while the host launches, which has more to do for smaller micro-batches.
    assert 0 < part(four, "optimizer").time_s <= part(whole, "optimizer").time_s
    assert part(run("8x A100 SXM4 80GB", sharding="zero1"), "optimizer").time_s < part(whole, "optimizer").time_s


def test_the_bubble_of_a_pipeline():
    """Of m micro-batches on p stages, p - 1 turns of m + p - 1 are idle."""
    found = run("4x H100 SXM", pipeline_parallel=4, accumulation=8)
    computed = part(found, "forward").time_s + part(found, "backward").time_s
    assert part(found, "waiting for stages").time_s / computed == pytest.approx(3 / 8)
    parts = run("4x H100 SXM", pipeline_parallel=4, accumulation=8, virtual_stages=3)
    assert part(parts, "waiting for stages").time_s / computed == pytest.approx(3 / 24)


def test_what_is_sent_between_nodes_by_hand():
    """Two nodes: half of the bytes cross 0.85 of the network, in two messages; inside, NVLink is quicker."""
    traffic = Traffic(find_gpu("H100 SXM"), 8, network_bandwidth=1e9)
    assert traffic.gathered(1e9, 16).time_s == pytest.approx(0.5 / 0.85 + 2 * 10e-6)
    assert traffic.all_reduce(1e9, 16).time_s == pytest.approx(2 * (0.5 / 0.85 + 2 * 10e-6))
    # Each second GPU: two such groups share the adapters of a node.
    assert traffic.gathered(1e9, 8, stride=2).time_s == pytest.approx(2 * 0.5 / 0.85 + 2 * 10e-6)
    assert traffic.gathered(1e9, 8).time_s < 0.02
    # Its adapters are those of a DGX H100: 8 of 400 Gbit/s.
    assert Traffic(find_gpu("H100 SXM"), 8).between_nodes == pytest.approx(0.85 * 8 * 50e9, rel=0.02)
    assert traffic.gathered(1e9, 1) == (0.0, 0.0)


@pytest.mark.parametrize("gpu", ["L40S", "RTX 4090", "T4", "V100 PCIe 32GB", "A100 80GB SXM", "H100 SXM"])
def test_the_same_gpus_in_more_nodes_are_no_quicker(gpu):
    for kind in ("gathered", "all_reduce"):
        found = [getattr(Traffic(find_gpu(gpu), per_node), kind)(1e9, 8).time_s for per_node in (8, 4, 2)]
        assert found == sorted(found)
    # All of 16 parts but one cross each link, instead of all of 8 but one.
    one, two = (Traffic(find_gpu(gpu), 8, 1e15).gathered(1e9, gpus) for gpus in (8, 16))
    assert two.time_s == pytest.approx(one.time_s * (15 / 16) / (7 / 8) + 2 * 10e-6)
    assert two.energy_j == pytest.approx(one.energy_j * (15 / 16) / (7 / 8))


def test_a_slower_network_is_waited_for():
    slow, quick = (run("64x H100 SXM", network_bandwidth=rate).time_s for rate in (1e9, 400e9))
    assert slow > 2 * quick


def test_between_steps_by_hand():
    stored = {"checkpoints": 3, "checkpoint_bandwidth": 1e9}
    found = run("2x H100 SXM", epochs=2, evaluation_samples=640, loader_samples_per_s=1e3, **stored)
    plain = run("2x H100 SXM", epochs=2)
    assert part(found, "evaluation").time_s == pytest.approx(part(plain, "forward").time_s * 640 / 6400)
    assert found.steps == 200
    assert part(found, "waiting for data").time_s == pytest.approx(200 * 64 / 1e3 - plain.time_s)
    # Data come at a known rate, however long a step takes: what is evaluated alone is not known.
    low, high = found.interval(0.9).time_s
    assert (low + high) / 2 == pytest.approx(found.time_s, rel=0.01)
    assert high - low < 0.5 * part(found, "evaluation").time_s
    # Weights and two moments, stored once.
    assert part(found, "checkpoints").time_s == pytest.approx(3 * 3 * 2 * PARAMETERS / 1e9, rel=0.01)


def test_the_loss_over_words_is_added_where_it_is_missing():
    head = Operation("linear", [(8, 512, 768)], {"out_features": 50257}, precision="bf16", mode="training")
    added = with_loss(Network.of([(head, 1)])).entries[1:]
    assert [(e.operation.kind, e.operation.precision) for e in added] == [("softmax", "fp32"), ("copy", "fp32")]
    assert {e.operation.output_shape for e in added} == {(8, 512, 50257)}
    small = Network.of([(Operation("linear", [(8, 768)], {"out_features": 10}, mode="training"), 1)])
    assert with_loss(small) == small
    again = with_loss(Network.of([(head, 1)]))
    assert with_loss(again) == again


def test_adapters_of_a_named_model_under_autocast():
    """Queries and values of the 4 layers have two adapters each; a base of 4 bits needs less memory and more time."""
    pytest.importorskip("torch")
    asked = {"lora": 4, "precision": "amp", "samples": 100, "optimizer": "sgd"}
    found, qlora = (
        predict_run("plain_bert_small", (4, 16), "H100 SXM", **asked, base_precision=base) for base in (None, "nf4")
    )
    assert qlora.memory_bytes < found.memory_bytes
    assert qlora.time_s > found.time_s
    assert any("nf4" in note for note in qlora.notes)
    linear = [cost for cost in found.micro.operations if cost.operation.kind == "linear"]
    adapters = {path for cost in linear for path in cost.module_paths if ".lora_" in path}
    assert len(adapters) == 4 * 2 * 2
    assert all(".query." in path or ".value." in path for path in adapters)
    learned = {cost.operation.gradients for cost in linear if adapters & set(cost.module_paths)}
    assert learned <= {"all", "parameters"}
    assert {cost.operation.precision for cost in linear} == {"bf16"}
    assert {c.operation.precision for c in found.micro.operations if c.operation.kind == "layer_norm"} == {"fp32"}


def test_adapters_in_layers():
    torch = pytest.importorskip("torch")
    from joulecast.extraction.traced_models import adapt

    def model():
        return torch.nn.ModuleDict(
            {name: torch.nn.Linear(8, 6, device="meta") for name in ("q_proj", "v_proj", "up", "head")}
        )

    for targets, adapted in ((None, ["q_proj", "v_proj"]), ("up", ["up"]), ("all-linear", ["q_proj", "v_proj", "up"])):
        module = model()
        adapt(module, 2, targets)
        learned = {name: p.numel() for name, p in module.named_parameters() if p.requires_grad}
        assert learned == {
            f"{n}.{each}.weight": size for n in adapted for each, size in (("lora_A", 16), ("lora_B", 12))
        }
        assert module[adapted[0]](torch.empty(3, 8, device="meta")).shape == (3, 6)
    with pytest.raises(InputError, match="no layers for these adapters"):
        adapt(model(), 2, "query")
