"""Held-out operations are held out in all variants, and the numbers of the report are what their names say."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_operations

from joulecast import Network, Operation
from joulecast.predictors.evaluation import left_out as network_validation
from joulecast.predictors.evaluation.errors import Errors, r2, statistics
from joulecast.predictors.evaluation.left_out import FOLDS, leave_kinds_out, leave_networks_out
from joulecast.predictors.evaluation.one_gpu import validate
from joulecast.predictors.measured import alike, fold_of, network_family, only_in, variants
from joulecast.predictors.recipes import ForestRecipe
from joulecast.zoo.rendering import report

RECIPE = ForestRecipe(trees=8, folds=4)


FAMILIES = dict.fromkeys(("resnet18", "wide_resnet50_2", "resnext101_32x8d"), "resnet")
FAMILIES |= dict.fromkeys(("efficientnet_b0", "efficientnet_v2_m"), "efficientnet")
FAMILIES |= dict.fromkeys(("googlenet", "inception_v3"), "inception")
FAMILIES |= {"swin_v2_t": "swin", "vit_b_16": "vit", "vgg16_bn": "vgg", "timm/convnext_tiny": "convnext"}
FAMILIES |= {"densenet121": "densenet", "llama3_8b": "llama"}


def test_families():
    assert {name: network_family(name) for name in FAMILIES} == FAMILIES


def test_variants_of_an_operation_stay_together():
    inference = [op.replace(precision=p) for op in simulated_operations() for p in ("fp32", "bf16")]
    both = inference + [op.replace(mode="training") for op in inference]
    folds = fold_of(both, 4, seed=0)
    assert set(folds.values()) == {0, 1, 2, 3}
    for operation in both:
        assert {folds[v] for v in variants([operation]) if v in folds} == {folds[operation]}
    sizes = [list(folds.values()).count(fold) for fold in range(4)]
    assert max(sizes) - min(sizes) <= 4


def test_only_what_no_other_network_has_is_left_out():
    mine, shared = (Operation("relu", [(n, 8)], mode="training") for n in (4, 5))
    only = only_in([[mine, shared]], [[shared.replace(mode="inference", precision="bf16")]])
    assert {alike(operation) for operation in only} == {alike(mine)}
    assert mine.replace(mode="inference", precision="bf16") in only


def test_scores_by_hand():
    measured, predicted = np.array([1.0, 2.0, 4.0, np.nan]), np.array([1.1, 2.0, 3.0, 7.0])
    # Squared errors 0.01 + 0 + 1, squared deviations from 7/3: 42/9.
    assert r2(measured[:3], predicted[:3]) == pytest.approx(1 - 1.01 / (42 / 9))
    assert (r2(np.ones(3), np.ones(3)), r2(np.ones(3), measured[:3])) == (1.0, 0.0)
    assert statistics([-0.3, 0.1])["p90"] == pytest.approx(0.28)
    columns = {"split": ["folds"] * 4, "where": ["one"] * 4, "what": ["b", "a", "a", "c"]}
    named = {name: np.array(values) for name, values in columns.items()}
    rows = Errors(tuple("wxyz"), named, {"time": measured}, {"time": predicted}).rows(together=False)
    assert [(row["what"], row["count"]) for row in rows] == [("all", 3), ("a", 2), ("b", 1)]
    by_hand = {"mean": (0.1 + 0 + 0.25) / 3, "median": 0.1, "bias": (0.1 - 0.25) / 3, "r2": 1 - 1.01 / (42 / 9)}
    assert {name: rows[0]["time"][name] for name in by_hand} == pytest.approx(by_hand)


def test_tables_are_joined_by_what_they_share():
    one, other = (
        Errors(("x",), {"split": np.array([name]), name: np.ones(1)}, {name: np.ones(1)}, {name: np.full(1, 2.0)})
        for name in ("time", "power")
    )
    both = Errors.joined([one, Errors(), other])
    assert set(both.columns) == {"split"}
    assert both.known("time").tolist() == [True, False]
    assert both.relative("power").tolist() == [1.0]
    assert both.log_errors("time")[0] == pytest.approx(np.log(2))
    assert np.isnan(both.log_errors("energy")).all()  # Its power was not measured where its time was.


def _networks(dataset):
    operations = simulated_operations()
    names = ("resnet18", "resnext50_32x4d", "swin_t")
    measured = tuple(replace(dataset.networks[0], network=name) for name in names)
    common, block, own = operations[0], operations[5], operations[10]
    parts = ([(common, 3), (block, 2)], [(common, 2), (block, 1)], [(common, 1), (own, 4)])
    return replace(dataset, networks=measured), {m: Network.of(part) for m, part in zip(measured, parts, strict=True)}


def test_a_family_takes_more_along_than_a_name(dataset, monkeypatch):
    data, networks = _networks(dataset)
    seen = []
    fit = network_validation.fit_chip

    def fit_and_remember(*arguments, without=()):
        seen.append(without)
        return fit(*arguments, without=without)

    monkeypatch.setattr(network_validation, "fit_chip", fit_and_remember)
    by_name, _ = leave_networks_out(data, "inference", RECIPE, networks, by="name")
    for _, errors in by_name.groups("split"):  # as composed, and as sums
        assert errors.of == data.networks
        assert errors["left_out"].tolist() == [0, 0, 1]
    by_family, with_them = leave_networks_out(data, "inference", RECIPE, networks, by="family")
    assert by_family["left_out"].tolist() == [1] * 6
    block = simulated_operations()[5]
    assert variants([block]) == seen[-2]
    assert len(seen) == 3 + 2
    assert set(with_them.of) == {simulated_operations()[5], simulated_operations()[10]}
    leave_networks_out(data, "inference", RECIPE, networks, by="nothing")
    assert len(seen) == 3 + 2 + 1


def test_kinds_left_out_are_predicted_by_what_stands_in(dataset):
    errors = leave_kinds_out(dataset, "inference", RECIPE)
    kinds = dict(errors.groups("what"))
    assert not kinds["relu"].known("time").any()  # No other operation here only moves memory.
    assert len(kinds["linear"]) == 25


def test_report(dataset):
    data, networks = _networks(dataset)
    validation = validate(data, "inference", RECIPE, networks)
    text = report("Title", "splits", RECIPE, [validation], command="evaluate")
    for part in (
        *("### Intervals", "within what chance allows", "folds over all campaigns | all | 100 (100) |"),
        *("| simulated | all | 100 |", "### Networks by family, inference", "| NVIDIA A30 | all | 3 |"),
        "as a plain sum of loops",
    ):
        assert part in text
    metrics = validation.metrics()
    assert metrics["networks by family, inference/NVIDIA A30/time_mean"] > 0
    assert metrics[f"{FOLDS}/simulated/time_r2"] > 0.9
    where, split, count, *errors = validation.scores()[0]
    assert (where, split, count) == ("NVIDIA A30, inference, simulated", FOLDS, "100")
    assert errors[0] == f"{100 * metrics[f'{FOLDS}/simulated/time_median']:.1f} %"


def test_a_network_with_all_operations_that_were_measured_is_not_left_out(dataset):
    only = replace(dataset.networks[0], network="resnet18")
    networks = {only: Network.of([(operation, 1) for operation in simulated_operations()])}
    data = replace(dataset, networks=(only,))
    for by in ("name", "family"):
        errors, with_them = leave_networks_out(data, "inference", RECIPE, networks, by=by)
        assert (len(errors), len(with_them)) == (0, 0)
    assert len(leave_networks_out(data, "inference", RECIPE, networks, by="nothing")[0]) == 2
