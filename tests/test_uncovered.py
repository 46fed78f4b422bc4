"""Work without an operation counts as not covered, in every answer. Sizes of an unknown operator are by hand."""

import csv
import dataclasses
import io

import pytest
import torch
from torch import nn

import joulecast
from joulecast import Network
from joulecast.errors import InputError, UncoveredError
from joulecast.extraction import network_of
from joulecast.extraction.operators import OPERATORS
from joulecast.operations.entry import BOOKKEEPING, EXEMPT, SHAPE_ARITHMETIC, Dropped, DroppedWork
from joulecast.predictors.networks.costs import MOST_UNCOVERED_SHARE, percent
from joulecast.predictors.networks.memory import memory_need


@pytest.fixture(scope="module", autouse=True)
def unknown_operator():
    with torch.library._scoped_library("joulecast_unknown", "DEF") as library:
        library.define("scale(Tensor x, Tensor by) -> Tensor")
        torch.library.register_fake("joulecast_unknown::scale", lambda x, by: torch.empty_like(x), lib=library)
        torch.library.register_autograd("joulecast_unknown::scale", lambda _, grad: (grad, None), lib=library)
        yield


class Scale(nn.Module):
    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return torch.ops.joulecast_unknown.scale(x, self.by)


def mostly_known(layers: int = 8) -> nn.Module:
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(layers)), Scale())


SHAPE = (32, 64)
MOVED = 4 * (32 * 64 + 64 + 32 * 64)
"""Bytes that one call of the unknown operator reads and writes."""


def test_how_large_dropped_work_is():
    network = network_of(nn.Sequential(nn.ReLU(), shared := Scale(), shared), SHAPE)
    (dropped,) = network.dropped
    assert (dropped.name, dropped.count, dropped.reason) == ("joulecast_unknown.scale", 2, "no operation kind")
    assert dropped.work == DroppedWork(
        flops=0,
        moved_bytes=2 * MOVED,
        parameter_bytes=4 * 64,  # These count once, although two calls read them.
        output_bytes=2 * 4 * 32 * 64,
        largest_bytes=4 * 2 * 32 * 64,
    )
    half = network_of(nn.Sequential(nn.ReLU(), Scale()), SHAPE, precision="bf16").dropped[0].work
    assert half.moved_bytes == MOVED / 2
    assert network.uncounted == network.dropped


def test_flops_of_dropped_work():
    (linear,) = network_of(nn.Sequential(nn.ReLU(), nn.Linear(64, 128)), SHAPE, whitelist={"relu"}).uncounted
    assert linear.work.flops == 2 * 32 * 64 * 128
    assert linear.work.parameter_bytes == 4 * (64 * 128 + 128)
    assert linear.work.largest_bytes == 4 * (32 * 64 + 32 * 128)


def test_flops_of_an_operator_without_a_kind_are_pytorchs(monkeypatch):
    monkeypatch.delitem(OPERATORS, "_scaled_mm")

    class Eight(nn.Module):
        def forward(self, x):
            a = torch.relu(x).to(torch.float8_e4m3fn)
            one = torch.ones((), device=x.device)
            return torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16)

    work = {d.name: d.work for d in network_of(Eight(), SHAPE).uncounted}["aten._scaled_mm"]
    assert work.flops == 2 * 32 * 64 * 32


def test_what_fills_constants_is_exempt():
    class Fills(nn.Module):
        def forward(self, x):
            n = x.shape[1]
            parts = [torch.arange(n), torch.linspace(0, 1, n), torch.eye(n)[0], torch.full((n,), 2.0)]
            parts += [torch.zeros(n), torch.ones(n), torch.zeros_like(x)[0], torch.ones_like(x)[0]]
            parts += [torch.full_like(x, 3.0)[0], x.new_zeros(n), x.new_ones(n), x.new_full((n,), 1.0)]
            return torch.relu(x) + sum(torch.empty_like(x).fill_(1.0).zero_()[0] + part for part in parts)

    network = network_of(Fills(), SHAPE)
    assert {d.name for d in network.dropped} >= EXEMPT - {"aten._local_scalar_dense"}
    assert network.uncounted == joulecast.predict(network, None, "A30").uncovered == ()
    assert all(hasattr(torch.ops.aten, name.removeprefix("aten.")) for name in EXEMPT)


def test_masks_and_positions_are_exempt_and_work_on_activations_is_not():
    class Masks(nn.Module):
        def forward(self, x):
            positions = torch.arange(x.shape[1])
            torch.nonzero(positions)
            return torch.relu(x)

    network = network_of(Masks(), SHAPE)
    assert {d.reason for d in network.dropped} == {SHAPE_ARITHMETIC}
    assert Dropped("aten.add", 1, (), BOOKKEEPING).is_exempt
    assert not Dropped("aten.gcd", 1, (), "no operation kind").is_exempt

    class Compares(nn.Module):
        def forward(self, x):
            return torch.relu(x) + torch.gcd(x.int(), x.int())

    (dropped,) = network_of(Compares(), SHAPE).uncounted
    assert dropped.work.moved_bytes == 4 * 3 * 32 * 64


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_small_uncovered_share_is_noted_and_widens_the_interval(mode):
    model, known = mostly_known(), nn.Sequential(*mostly_known()[:-1])
    network, covered = (joulecast.extract(m, SHAPE, mode=mode) for m in (model, known))
    prediction, whole = (joulecast.predict(n, None, "A30") for n in (network, covered))
    moved = (3 if mode == "training" else 1) * MOVED
    listed = sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in covered)
    share = moved / (listed + moved)
    assert prediction.uncovered_share == pytest.approx(share)
    assert 0.02 < share < MOST_UNCOVERED_SHARE
    (uncovered,) = prediction.uncovered
    assert (uncovered.name, uncovered.moved_bytes, uncovered.module_paths) == ("joulecast_unknown.scale", moved, ("8",))
    assert prediction.time_s == whole.time_s
    assert prediction.interval().time_s[1] == pytest.approx(whole.interval().time_s[1] / (1 - share))
    for text in (str(prediction), prediction.notes[0], prediction._repr_html_()):
        assert "INCOMPLETE" in text
        assert "joulecast_unknown.scale" in text
    value = prediction.to_dict()
    assert value["uncovered_share"] == prediction.uncovered_share
    assert "joulecast_unknown.scale" in value["uncovered"][0]
    last = [*csv.DictReader(io.StringIO(prediction.to_csv()))][-1]
    assert (last["kind"], last["source"], last["energy_j"]) == ("joulecast_unknown.scale", "missing", "")
    with pytest.raises(UncoveredError, match=r"1 operations of .* not covered(?s:.*)joulecast_unknown\.scale"):
        joulecast.predict(network, None, "A30", strict=True)
    assert "INCOMPLETE" not in str(whole)


def test_choices_name_uncovered_work():
    network = joulecast.extract(mostly_known(), SHAPE)
    choices = joulecast.best(network, gpus=["A30", "T4"])
    for choice in choices:
        assert "INCOMPLETE" in str(choice)
        assert "joulecast_unknown.scale" in choice.uncovered[0]
        assert choice.to_dict()["uncovered_share"] == choice.uncovered_share > 0.02
    sweep = joulecast.sweep(network, gpus="A30", clocks=[900])
    assert float(next(csv.DictReader(io.StringIO(sweep.to_csv())))["uncovered_share"]) > 0.02
    for html in (choices._repr_html_(), choices[0]._repr_html_(), sweep._repr_html_()):
        assert "INCOMPLETE" in html


def test_too_much_uncovered_work_leaves_no_total():
    network = joulecast.extract(mostly_known(layers=1), SHAPE)
    for ask in (
        lambda: joulecast.predict(network, None, "A30"),
        lambda: joulecast.best(network),
        lambda: joulecast.sweep(network),
    ):
        with pytest.raises(UncoveredError, match="too much of Sequential") as caught:
            ask()
        assert "joulecast_unknown.scale" in caught.value.given
        assert "operators=" in caught.value.hint
    on_purpose = dataclasses.replace(network, dropped=())
    assert joulecast.predict(on_purpose, None, "A30").uncovered == ()
    operators = {"joulecast_unknown.scale": "mul"}
    prediction = joulecast.predict(mostly_known(layers=1), SHAPE, "A30", operators=operators, strict=True)
    assert "mul" in {cost.operation.kind for cost in prediction.operations}
    (choice,) = joulecast.best(mostly_known(layers=1), SHAPE, gpus="A30", clocks=1440, operators=operators)
    assert choice.energy_j == prediction.energy_j


def test_memory_counts_what_is_dropped():
    known, model = nn.Sequential(nn.Linear(64, 64)), nn.Sequential(nn.Linear(64, 64), Scale(64))
    for mode, copies in (("inference", 1), ("training", 2)):
        less, more = (memory_need(joulecast.extract(m, SHAPE, mode=mode)) for m in (known, model))
        assert more.weights_bytes - less.weights_bytes == copies * 4 * 64
        assert more.activations_bytes - less.activations_bytes == (4 * 32 * 64 if mode == "training" else 0)


def test_files_store_uncovered_work_and_earlier_files_load():
    network = joulecast.extract(mostly_known(), SHAPE)
    assert Network.from_dict(network.to_dict()) == network
    value = network.to_dict()
    for dropped in value["dropped"]:
        del dropped["work"]
    old = Network.from_dict(value)
    assert old.dropped[0].work is None
    prediction = joulecast.predict(old, None, "A30")
    assert prediction.uncovered_share is None
    assert prediction.interval() is None
    assert "unknown share" in str(prediction)
    assert any("it is not known how much" in note for note in prediction.notes)
    with pytest.raises(UncoveredError):
        joulecast.predict(old, None, "A30", strict=True)


@pytest.mark.parametrize(
    ("damaged", "says"),
    [
        ("scale", "what was dropped has the wrong type"),
        ({"name": "aten.sort"}, "(?s)what was dropped .*KeyError: 'count'.*name, count and reason"),
        ({"name": "aten.sort", "count": 1, "reason": "", "work": {"flops": 1}}, "missing 4 required"),
        (
            {"name": "aten.sort", "count": 1, "reason": ""}
            | {"work": dict.fromkeys([f.name for f in dataclasses.fields(DroppedWork)], -1)},
            "-1 is out of range: 0",
        ),
    ],
)
def test_damaged_files(damaged, says):
    value = joulecast.extract(nn.ReLU(), SHAPE).to_dict()
    with pytest.raises(InputError, match=says):
        Network.from_dict({**value, "dropped": [damaged]})


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.0 %"), (1.8e-7, "below 0.01 %"), (0.0004, "0.04 %"), (0.083, "8.3 %"), (0.25, "25 %")]
)
def test_shares_are_read_at_a_glance(share, text):
    assert percent(share) == text
