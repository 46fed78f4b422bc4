"""Promotion: whether one predictor is better than another, by more than what chance explains; then it is champion.

Both were tested on the same networks (or operations), left out of their training. The difference of their errors is
taken network by network, and the networks are resampled with replacement ten thousand times (paired bootstrap; Efron
and Tibshirani, An Introduction to the Bootstrap, 1993). All shapes, precisions and clocks of one network stay together,
because their errors are correlated. The challenger is better if it loses in less than 5 % of these samples.

Networks are what users predict, so they decide where there are enough of them. Where there are too few to resample (the
A30's dataset has six), operations decide, and the mean error on the networks must not have grown. An operation that was
measured in several campaigns counts once.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError, ZooError
from .files import LEFT_OUT, StoredEntry, parsed_json
from .registry import CHALLENGER, CHAMPION, fetched, version_of
from .server import connected

if TYPE_CHECKING:
    from ..predictors.evaluation.errors import Validation

Errors = Mapping[str, Mapping[str, float]]
"""Network or operation that was left out -> quantity -> relative error."""


def operations_left_out(validation: Validation) -> dict[str, dict[str, float]]:
    """Relative errors of time and power of each operation in cross-validation; of repeated measurements, the median."""
    repeats: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    errors = validation.operations
    logs = {quantity: errors.log_errors(quantity) for quantity in errors.measured}
    for place, (operation, campaign) in enumerate(zip(errors.of, errors["where"], strict=True) if len(errors) else ()):
        label = f"{operation.kind} {operation.digest[:12]} ({campaign})"
        for quantity, values in logs.items():
            if not np.isnan(values[place]):
                repeats[label][quantity].append(float(np.expm1(values[place])))
    return {label: {name: float(np.median(v)) for name, v in mine.items()} for label, mine in repeats.items()}


def left_out_of(folder: Path) -> dict[str, Errors]:
    """Read the errors by which an entry is compared: on "networks", where any were measured, on "operations", or both.

    Raises ZooError: the entry is damaged, or stores no such errors.
    """
    files = StoredEntry.of(folder)
    try:
        # Of each mode the first split counts: by name, or for any GPU with nothing known of the chip.
        first: dict[str, str] = {}
        networks = {}
        for case in files.card["networks"]:
            if first.setdefault(case["mode"], case["split"]) == case["split"]:
                label = f"{case['where']}: {case['network']} {case['input']} {case['precision']} {case['mode']}"
                clock = f" at {case['clock_mhz']:.0f} MHz" if "clock_mhz" in case else ""
                networks[label + clock] = {name: case[name] for name in ("time", "energy", "power") if name in case}
        tested = {"networks": _checked(networks)}
        if LEFT_OUT in files:
            tested["operations"] = _checked(parsed_json(files[LEFT_OUT], "the errors of this zoo entry"))
        if any(tested.values()):
            return {what: errors for what, errors in tested.items() if errors}
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise ZooError(
            "the errors of this zoo entry are damaged",
            given=f"{folder}: {error}"[:300],
            hint="train it again to compare it",
        ) from error
    raise ZooError(
        "this zoo entry stores no errors on what was left out", given=str(folder), hint="train it again to compare it"
    )


def _checked(errors: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    checked = {
        str(label): {str(name): float(value) for name, value in quantities.items()}
        for label, quantities in errors.items()
    }
    if any(value <= -1 for quantities in checked.values() for value in quantities.values()):
        raise ValueError("a relative error of -100 % or less")
    return checked


_DRAWS = 10_000
_LEVEL = 0.05
_LEAST_GROUPS = 8
_SEED = 0


@dataclass(frozen=True)
class Verdict:
    """The result of comparing a challenger with a champion.

    Args:
        champion_error, challenger_error: Mean absolute log errors on what both were tested on; NaN where nothing was.
        compared: Number of networks or operations that both were tested on.
        enough: Whether these are enough to tell the two apart.
    """

    better: bool
    why: str
    champion_error: float = float("nan")
    challenger_error: float = float("nan")
    compared: int = 0
    enough: bool = True


def compare(champion: Errors, challenger: Errors) -> Verdict:
    """Compare the errors of two predictors on what was left out of the training of both."""
    pairs: dict[str, list[FloatArray]] = defaultdict(list)
    for label in sorted(champion.keys() & challenger.keys()):
        if both := sorted(champion[label].keys() & challenger[label].keys()):
            relative = [[each[label][name] for name in both] for each in (champion, challenger)]
            pairs[_group(label)].append(np.abs(np.log1p(relative)).mean(axis=1))
    count = sum(map(len, pairs.values()))
    sums = np.array([np.sum(group, axis=0) for group in pairs.values()]).reshape(-1, 2)
    before, after = (sums.sum(axis=0) / max(count, 1)).tolist()
    if len(pairs) < _LEAST_GROUPS:
        why = (
            f"both were tested on {len(pairs)} of the same networks or operations; {_LEAST_GROUPS} are needed to tell "
            "them apart. Train both on the same data"
        )
        return Verdict(False, why, before, after, count, enough=False)
    sizes = np.array([len(group) for group in pairs.values()], dtype=float)
    drawn = np.random.default_rng(_SEED).integers(len(sizes), size=(_DRAWS, len(sizes)))
    gains = (sums[:, 0] - sums[:, 1])[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    least = float(np.quantile(gains, _LEVEL))
    tested = f"on {count} left out of training, in {len(pairs)} groups"
    errors = f"mean absolute log error {before:.4f} before, {after:.4f} after, {tested}"
    if after >= before:
        why = f"the challenger is not better: {errors}"
    elif least <= 0:
        why = f"the challenger's gain may be chance: {errors}; the gain may be as low as {least:.4f}"
    else:
        why = f"the challenger is better: {errors}; the gain is at least {least:.4f} in 95 % of the bootstrap samples"
    return Verdict(before > after and least > 0, why, before, after, count)


def decide(champion: Mapping[str, Errors], challenger: Mapping[str, Errors]) -> Verdict:
    """Compare two predictors by their errors on networks, or on operations where there are too few networks.

    Args:
        champion: "networks" and "operations", where there are any -> errors on them.
    """
    both = [what for what in ("networks", "operations") if what in champion and what in challenger]
    verdicts = {what: compare(champion[what], challenger[what]) for what in both}
    if not verdicts:
        had = " and ".join(sorted({*champion, *challenger}))
        return Verdict(False, f"they were not tested on the same ({had}); train both on the same data")
    networks, operations = verdicts.get("networks"), verdicts.get("operations")
    if networks is None or operations is None or networks.enough:
        return networks or verdicts["operations"]
    if operations.better and networks.challenger_error > networks.champion_error:
        grown = f"{networks.champion_error:.4f} before, {networks.challenger_error:.4f} after"
        why = f"better on operations, but worse on the {networks.compared} networks that were left out: {grown}"
        return replace(operations, better=False, why=why)
    return replace(operations, why=f"{operations.why} (on operations, because there are too few networks)")


def _group(label: str) -> str:
    """The group whose errors are correlated: a network in all shapes and precisions, an operation in all campaigns.

    Labels are "resnet50 32x3x224x224 fp32" and "conv2d 0123456789ab (campaign)".
    """
    operation, _, campaign = label.partition(" (")
    return operation if campaign else re.split(r" \d+(?:x\d+)* ", label, maxsplit=1)[0]


def promote(name: str, version: str | None = None, *, force: bool = False, uri: str | None = None) -> tuple[bool, str]:
    """Make a version champion if it is better than the champion by more than chance explains.

    Returns whether it was promoted, and why. Both are compared on networks and operations that were left out of the
    training of both, see `decide`. Raises MissingDependencyError: mlflow is not installed. Raises TrackingError: the
    server cannot be reached or denies access, or there is no such model. Raises ZooError: one of the versions was not
    registered by joulecast.

    Args:
        version: Version of the model; None for the challenger.
        force: Make it champion whatever the comparison says. The version's tags record that.
    """
    with connected(uri, "nothing was promoted", reading=True) as mlflow:
        client = mlflow.MlflowClient()
        aliases = {alias: str(each) for alias, each in client.get_registered_model(name).aliases.items()}
        champion, challenger = aliases.get(CHAMPION), version or aliases.get(CHALLENGER)
        if challenger is None:
            raise InputError(
                "this model has no challenger",
                given=name,
                hint=f"register one, or `joulecast zoo promote {name} --version N`",
            )
        if challenger == champion:
            return False, f"{name}/{challenger} is the champion already"
        new = left_out_of(fetched(mlflow, name, challenger, uri))
        if champion is None:
            verdict = Verdict(True, "there is no champion yet")
        else:
            verdict = decide(left_out_of(fetched(mlflow, name, champion, uri)), new)
        if not verdict.better and not force:
            return False, f"{name}/{challenger} was not promoted: {verdict.why}"
        said = verdict.why if verdict.better else f"forced, although {verdict.why}"
        tags = {
            "promoted": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "promotion": said,
            "promotion_forced": str(not verdict.better).lower(),
            "champion_before": champion or "",
        }
        for key, value in tags.items():
            client.set_model_version_tag(name, challenger, f"joulecast.{key}", value)
        client.set_registered_model_alias(name, CHAMPION, challenger)
        if aliases.get(CHALLENGER) == challenger:
            client.delete_registered_model_alias(name, CHALLENGER)
        version_of.cache_clear()
        return True, f"{name}/{challenger} is the champion: {said}"
