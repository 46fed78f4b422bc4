"""What a GPU computes where sequences and experts are shared, in fp8 and on a base of 4 bits, by arithmetic."""

from itertools import pairwise

import pytest

from joulecast import Operation, predict_run
from joulecast.errors import InputError
from joulecast.hardware import find_gpu
from joulecast.operations.entry import Entry
from joulecast.operations.network import Network, ParameterBytes
from joulecast.runs import Layout
from joulecast.runs.computed import computed_part, in_fp8, on_four_bits
from joulecast.runs.state import State
from joulecast.runs.traffic import Traffic


def run(gpu="8x H100 SXM", shape=(16, 2048), **options):
    return predict_run(
        "llama3_8b", shape, gpu, **{"samples": 1600, "precision": "bf16", "recompute": "full", **options}
    )


def trained(kind, shapes, path, **attributes):
    return Entry(Operation(kind, shapes, attributes, precision="bf16", mode="training"), 1, (path,))


def experts(count=8, tokens=1024, top_k=2):
    """A block of attention's last layer and experts, and a step of the optimizer."""
    rows, path = tokens * top_k, "layers.0.mlp.experts"
    entries = (
        trained("linear", [(tokens, 512)], "layers.0.attn.o_proj", out_features=512, bias=False),
        trained("attention", [(1, 8, tokens, 64)] * 3, "layers.0.attn", causal=True),
        trained("grouped_linear", [(rows, 512)], path, out_features=1024, num_experts=count, bias=False),
        trained("silu", [(rows, 512)], f"{path}.act"),
        trained("grouped_linear", [(rows, 512)], path, out_features=512, num_experts=count, bias=False),
        trained("adamw_step", [(512 * 512 + count * 3 * 512 * 512,)], "(optimizer)"),
    )
    return Network(entries, name="experts", mode="training")


def test_attention_of_a_part_of_a_sequence():
    """A causal query of 1024 sees 512 keys in the mean: as one of 256 after 384 others. Others see all of them."""
    part = experts(tokens=256)
    for causal, keys in ((True, 640), (False, 1024)):
        attention = part.entries[1].operation.with_attributes(causal=causal)
        network = Network((Entry(attention, 1, ("layers.0.attn",)),), mode="training")
        (entry,) = computed_part(network, Layout(4, context_parallel=4))
        assert entry.operation.input_shapes == ((1, 8, 256, 64), (1, 8, keys, 64), (1, 8, keys, 64))
        assert entry.operation.attributes["causal"] is causal


def test_experts_on_several_gpus():
    whole = experts()
    part = computed_part(whole, Layout(4, expert_parallel=4))
    grouped = [entry.operation for entry in part if entry.operation.kind == "grouped_linear"]
    assert [each.attributes["num_experts"] for each in grouped] == [2, 2]
    assert [each.input_shapes for each in grouped] == [((2048, 512),)] * 2  # as many tokens, from all four
    # Each holds a quarter of 24 of 25 parts of the parameters.
    state = State.of(whole, Layout(4, expert_parallel=4))
    assert state.experts == pytest.approx(24 / 25)
    assert state.on_each == pytest.approx(1 / 25 + 24 / 100)
    # Where replicas divide the state as well, nothing is divided twice.
    assert State.of(whole, Layout(4, expert_parallel=4, sharding="zero3")).divisor("parameters") == pytest.approx(4)
    alone, four = (State.of(whole, Layout(4, expert_parallel=each)).memory().weights_bytes for each in (1, 4))
    assert four / alone == pytest.approx(state.on_each, rel=1e-6)
    with pytest.raises(InputError, match="experts of experts cannot be divided"):
        computed_part(whole, Layout(3, expert_parallel=3))


def test_tokens_are_sent_to_each_node_once():
    """Of 8 experts on two nodes 4 are on the other one, which gets a token once but for 1 of 256 tokens."""
    traffic = Traffic(find_gpu("H100 SXM"), 8)
    often, once = (traffic.exchanged(1e9, 16, copies).time_s for copies in (1, 8))
    assert once / often == pytest.approx(2 * (1 - 1 / 256) / 8, rel=0.01)
    assert traffic.exchanged(1e9, 8, 8) == traffic.exchanged(1e9, 8)


def test_gpus_that_share_layers_share_their_experts():
    part = computed_part(experts(), Layout(2, tensor_parallel=2))
    grouped = [entry.operation for entry in part if entry.operation.kind == "grouped_linear"]
    assert [(each.attributes["num_experts"], each.input_shapes[0][0]) for each in grouped] == [(4, 1024)] * 2
    one, two = (State.of(experts(), Layout(each, tensor_parallel=each)).memory().weights_bytes for each in (1, 2))
    assert two == pytest.approx(one / 2, rel=1e-3)


def test_fp8_is_for_layers_of_blocks():
    head = trained("linear", [(1024, 512)], "lm_head", out_features=16384, bias=False)
    odd = trained("linear", [(1024, 512)], "layers.0.router", out_features=9, bias=False)
    network = in_fp8(Network((*experts().entries, odd, head), mode="training"))
    precisions = {entry.module_paths[0]: entry.operation.precision for entry in network}
    assert [path for path, each in precisions.items() if each == "fp8"] == ["layers.0.attn.o_proj"]
    assert network.parameter_bytes.casts == 2 * 512 * 512
    assert next(e.operation for e in network if e.operation.kind == "attention").attributes["implementation"] == "cudnn"


def test_a_base_of_four_bits_by_hand():
    path, weights = "layers.0.up.base_layer", 1024 * 512
    base = trained("linear", [(64, 512)], path, out_features=1024, bias=False, gradients="inputs")
    held = ParameterBytes(2 * weights + 1000, 1000)
    network = Network((base,), mode="training", parameter_bytes=held)
    found = on_four_bits(network)
    assert found.parameter_bytes == (round(weights * 4.127 / 8 + 1000), 1000, 2 * weights)
    copy = found.entries[1].operation
    assert (copy.kind, copy.input_shapes, copy.precision) == ("copy", ((1024, 512),), "bf16")
    with pytest.raises(InputError, match="no frozen layers"):
        on_four_bits(experts())


def test_laws_of_what_is_shared():
    """Sequences on more GPUs need less memory for each, send more, and are never quicker than twice as many allow."""
    ways = [run(context_parallel=count, shape=(8, 8192)) for count in (1, 2, 4, 8)]
    memory = [way.memory_bytes for way in ways]
    assert memory == sorted(memory, reverse=True) or max(memory) / min(memory) < 1.02
    # Attention of an eighth of the queries is a kernel of another size, whose time is 3 to 5 % off.
    assert all(0.96 < way.time_s / ways[0].time_s < 1.1 for way in ways)
    assert all(0.97 < way.energy_j / ways[0].energy_j < 1.1 for way in ways)
    assert [way.layout.replicas for way in ways] == [8, 4, 2, 1]
    assert len({(way.steps, way.input_shape) for way in ways}) == 1
    with pytest.raises(InputError, match="the sequences cannot be divided"):
        run(context_parallel=8, shape=(8, 2044))
    eight, sixteen = run(precision="fp8"), run()
    assert eight.time_s < sixteen.time_s
    assert eight.energy_j < sixteen.energy_j
    clipped, plain = (run("H100 SXM", shape=(2, 2048), clip_gradients=each) for each in (True, False))
    # A norm reads 8.03e9 gradients, and scaling reads and writes them: 48 GB at up to 3.35 TB/s.
    assert 1 < (clipped.time_s - plain.time_s) / clipped.steps / (3 * 2 * 8.03e9 / 3.35e12) < 1.5


def test_python_launches_the_layers_of_transformer_engine():
    """128 forwards of 32 layers' two blocks, of 3.8 ms on the reference host, take longer than what they compute."""
    asked = {"gpu": "H100 SXM", "shape": (2, 1024), "samples": 256, "host": 1.0}
    asked |= {"precision": "fp8", "recompute": "none"}
    eager, graphs = (run(**asked, execution=each, evaluation_samples=64) for each in ("eager", "compiled"))
    parts, of_graphs = ({part.name: part for part in way.parts} for way in (eager, graphs))
    waited = parts.pop("waiting for the host")
    assert waited.time_s + parts["forward"].time_s == pytest.approx(128 * 64 * 3.8e-3)
    evaluation = parts.pop("evaluation")
    assert {**parts, "evaluation": of_graphs["evaluation"]} == of_graphs
    assert evaluation.time_s == pytest.approx((waited.time_s + parts["forward"].time_s) * 64 / 256)
    assert 100 < waited.energy_j / waited.time_s < 200  # A board of 700 W that waits
    assert any("CUDA graphs" in note for note in eager.notes)
    long = run(**{**asked, "shape": (16, 2048)})
    assert "waiting for the host" not in {part.name for part in long.parts}
    # In the backward as well, Python launches what is computed again.
    again = run(**{**asked, "recompute": "full"})
    both = sum(part.time_s for part in again.parts if part.name in ("forward", "recomputing", "waiting for the host"))
    assert both == pytest.approx(2 * 128 * 64 * 3.8e-3)


def gpt2(gpu="8x A100 SXM4 80GB", shape=(64, 1024), **options):
    return predict_run("gpt2", shape, gpu, **{"samples": 6400, "precision": "bf16", **options})


def test_compiled_steps_save_what_products_read_and_have_an_interval():
    way = {"shape": (256, 8192), "accumulation": 16, "sharding": "zero3", "recompute": "none"}
    eager, compiled = (run("16x H100 SXM", execution=each, **way) for each in ("eager", "compiled"))
    assert compiled.memory_bytes < 0.6 * eager.memory_bytes
    # Of each layer's 8192 tokens: queries, keys and values, results of attention and of blocks, gate and up, 2 bytes.
    per_layer = 2 * 8192 * (4096 + 2 * 1024 + 4096 + 2 * 4096 + 2 * 14336)
    assert compiled.memory_bytes > 32 * per_layer
    interval = compiled.interval(0.9)
    assert 1.1 < interval.time_s[1] / compiled.time_s < 1.2  # Kernels of the H100 were measured.
    assert not any(note.startswith("no interval") for note in compiled.notes)
    assert run(execution="compiled", precision="fp32").interval() is None


@pytest.mark.parametrize("gpu", ["H100 SXM", "A100 80GB PCIe", "L40S", "L4", "B200"])
def test_more_gpus_are_quicker_but_never_by_more_than_their_number(gpu):
    """Each GPU has 64 sequences of 512 tokens, so each computes as long; and what is sent costs something."""
    ways = [gpt2(f"{count}x {gpu}", (64 * count, 512), samples=64e4) for count in (1, 2, 4, 8, 16)]
    rates = [way.samples_per_s for way in ways]
    assert rates == sorted(rates)
    for fewer, more in pairwise(rates):
        assert 1.3 < more / fewer <= 2.001
    joules = [way.energy_j / way.samples for way in ways]
    assert all(more > 0.999 * fewer for fewer, more in pairwise(joules))  # Eight send a little quicker than four.


@pytest.mark.parametrize("count", [2, 4, 8])
def test_sharing_layers_is_at_most_somewhat_slower_than_replicas(count):
    """The same batch on as many GPUs: with quick links and divided norms, what is sent is the difference."""
    replicas, shared = run(f"{count}x H100 SXM"), run(f"{count}x H100 SXM", tensor_parallel=count)
    assert replicas.time_s < shared.time_s < 1.4 * replicas.time_s
