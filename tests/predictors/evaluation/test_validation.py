"""Held-out operations are held out in all variants, and the numbers of the report are what their names say."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_operations

from joulecast import Network, Operation
from joulecast.predictors.evaluation import left_out as network_validation
from joulecast.predictors.evaluation.errors import OperationErrors, absolute_errors, errors_by, r2, scores
from joulecast.predictors.evaluation.left_out import leave_kinds_out, leave_networks_out
from joulecast.predictors.evaluation.one_gpu import Validation, validate
from joulecast.predictors.evaluation.report import own_tables
from joulecast.predictors.measured import alike, fold_of, network_family, only_in, variants
from joulecast.predictors.recipes import ForestRecipe

RECIPE = ForestRecipe(trees=8, folds=4)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("resnet18", "resnet"),
        ("wide_resnet50_2", "resnet"),
        ("resnext101_32x8d", "resnet"),
        ("swin_v2_t", "swin"),
        ("efficientnet_b0", "efficientnet"),
        ("efficientnet_v2_m", "efficientnet"),
        ("vit_b_16", "vit"),
        ("vgg16_bn", "vgg"),
        ("timm/convnext_tiny", "convnext"),
        ("densenet121", "densenet"),
        ("googlenet", "inception"),
        ("inception_v3", "inception"),
        ("llama3_8b", "llama"),
    ],
)
def test_families(name, family):
    assert network_family(name) == family


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
    found = scores("time", measured, predicted)
    assert found["time_mean"] == pytest.approx((0.1 + 0 + 0.25) / 3)
    assert found["time_median"] == pytest.approx(0.1)
    assert absolute_errors([-0.3, 0.1])["p90"] == pytest.approx(0.28)
    groups = errors_by(["a", "b", "a", "c"], measured, predicted)
    assert {name: row["count"] for name, row in groups.items()} == {"a": 2, "b": 1}


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
    by_name = leave_networks_out(data, "inference", RECIPE, networks, by="name")
    assert [error.left_out for error in by_name.networks] == [0, 0, 1]
    by_family = leave_networks_out(data, "inference", RECIPE, networks, by="family")
    assert [error.left_out for error in by_family.networks] == [1, 1, 1]
    block = simulated_operations()[5]
    assert variants([block]) == seen[-2]
    assert len(seen) == 3 + 2
    assert set(by_family.operations.operations) == {simulated_operations()[5], simulated_operations()[10]}
    leave_networks_out(data, "inference", RECIPE, networks, by="none")
    assert len(seen) == 3 + 2 + 1


def test_kinds_left_out_are_predicted_by_what_stands_in(dataset):
    errors = leave_kinds_out(dataset, "inference", RECIPE)
    relu = [i for i, operation in enumerate(errors.operations) if operation.kind == "relu"]
    assert np.isfinite(errors.predicted_time_s[relu]).sum() == 0  # No other operation here only moves memory.
    norms = [i for i, operation in enumerate(errors.operations) if operation.kind == "linear"]
    assert len(norms) == 25


def test_report(dataset):
    data, networks = _networks(dataset)
    validation = validate(data, "inference", RECIPE, networks)
    report = "\n".join(own_tables(validation))
    for text in (
        "### Intervals",
        "folds over all campaigns | all | 100 (100) |",
        "| simulated | 100 | 100 |",
        "| family | host/device overlap | 3 |",
        "within what chance allows",
    ):
        assert text in report
    metrics = validation.metrics()
    assert metrics["families/time_error_mean"] > 0
    assert metrics["simulated/time_r2"] > 0.9


def test_campaigns_in_tables_have_names_and_no_digests():
    one = OperationErrors("", (), *[np.zeros(0)] * 4)
    names = ("night/6e44a47d81", "day/832a0a0ced", "night/152dc0e0f5")
    validation = Validation("A30", "inference", tuple(replace(one, campaign=name) for name in names), ())
    assert validation.campaign_titles == dict(zip(names, ("night (1 of 2)", "day", "night (2 of 2)"), strict=True))
