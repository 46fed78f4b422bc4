"""What predictors for any GPU learned, at rest: facts as JSON, and regressors as arrays beside their native form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...errors import ZooError, unknown_name
from ...predictors.any_gpu.ensemble import Ensemble
from ...predictors.any_gpu.predictor import BoostedResidual
from ...predictors.any_gpu.roofline import Roofline
from ...predictors.contract import ResidualModel
from ...predictors.physics.relative import RELATIVE_NAMES
from ...predictors.regressors.perceptron import Perceptron
from ...predictors.regressors.serving import regressor_files, stored_regressor
from ...predictors.transformer.attentive import Attentive, require_same_tokens
from ...predictors.transformer.encoder import OnnxEncoder
from ...predictors.transformer.tokens import IN_NETWORK
from ...predictors.transformer.weights import TransformerWeights

Files = Mapping[str, bytes]

PERCEPTRON = "perceptron.safetensors"
TRANSFORMER = "transformer.safetensors"


class Form(NamedTuple):
    """How one kind of correction is stored.

    Args:
        kind: Its class.
        write: Facts, which are plain lists and dictionaries, and files.
        read: The same backwards; raises ZooError, KeyError, TypeError or ValueError for what it did not write.
    """

    kind: type
    write: Callable[[Any], tuple[dict[str, Any], dict[str, bytes]]]
    read: Callable[[Mapping[str, Any], Files], ResidualModel]


def write_residual_model(correction: ResidualModel) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Facts and files of a correction that was just fitted.

    Raises:
        ZooError: It was not, but read from an entry.
    """
    (name,) = (name for name, form in FORMS.items() if isinstance(correction, form.kind))
    facts, files = FORMS[name].write(correction)
    return {"predictor": name, **facts}, files


def read_residual_model(facts: Mapping[str, Any], files: Files) -> ResidualModel:
    """What `write_residual_model` wrote.

    Raises:
        ZooError, KeyError, TypeError, ValueError: The facts or files are not what it wrote.
    """
    name = facts.get("predictor", "boosting")
    if name not in FORMS:
        raise unknown_name("predictor of a zoo entry", name, FORMS)
    return FORMS[name].read(facts, files)


def _write_trees(learned: BoostedResidual) -> tuple[dict[str, Any], dict[str, bytes]]:
    files = regressor_files("time", learned.time) | regressor_files("elsewhere", learned.unseen_chips)
    if isinstance(learned.perceptron, Perceptron):
        files[PERCEPTRON] = learned.perceptron.to_bytes()
    return learned.to_json(), files


def _read_trees(facts: Mapping[str, Any], files: Files) -> BoostedResidual:
    if facts["inputs"] != list(RELATIVE_NAMES):
        raise ZooError("this zoo entry was trained on other features", hint="train it again")
    time, unseen_chips = (stored_regressor(files, name, len(RELATIVE_NAMES)) for name in ("time", "elsewhere"))
    perceptron = Perceptron.from_bytes(files[PERCEPTRON]) if PERCEPTRON in files else None
    if perceptron is not None and perceptron.columns != len(RELATIVE_NAMES):
        raise ZooError("a stored perceptron wants other inputs than these", given=perceptron.columns)
    return BoostedResidual.from_json(facts, time, unseen_chips, perceptron)


def _write_nothing(correction: Roofline) -> tuple[dict[str, Any], dict[str, bytes]]:
    return {}, {}


def _read_nothing(facts: Mapping[str, Any], files: Files) -> Roofline:
    return Roofline()


def _write_transformer(learned: Attentive) -> tuple[dict[str, Any], dict[str, bytes]]:
    # Here, because it needs torch.
    from ...predictors.transformer.files import stored_weights

    return learned.to_json(), {TRANSFORMER: stored_weights(learned.reader.encoder)}


def _read_transformer(facts: Mapping[str, Any], files: Files) -> Attentive:
    require_same_tokens(facts)  # (before weights whose shapes follow from them)
    weights = TransformerWeights.from_bytes(files[TRANSFORMER])
    vocabulary = facts["vocabulary"]
    if len(vocabulary) != weights.kinds or not all(isinstance(kind, str) for kind in vocabulary):
        raise ZooError("a stored transformer tells other kinds apart than it has vectors for", given=len(vocabulary))
    learned = Attentive.from_json(facts, OnnxEncoder(weights))
    if learned.head is not None and learned.head.weights.shape[1] != weights.width + IN_NETWORK:
        raise ZooError("a stored transformer has a head for other vectors", given=str(learned.head.weights.shape))
    return learned


def _write_ensemble(ensemble: Ensemble) -> tuple[dict[str, Any], dict[str, bytes]]:
    facts: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for number, member in enumerate(ensemble.members):
        of_member, stored = write_residual_model(member)
        facts.append(of_member)
        files |= {f"member-{number}-{name}": data for name, data in stored.items()}
    return {"members": facts, "weights": list(ensemble.weights)}, files


def _read_ensemble(facts: Mapping[str, Any], files: Files) -> Ensemble:
    members = []
    for number, of_member in enumerate(facts["members"]):
        prefix = f"member-{number}-"
        mine = {name.removeprefix(prefix): data for name, data in files.items() if name.startswith(prefix)}
        if of_member["predictor"] == "ensemble":
            raise ZooError("an ensemble in a zoo entry is made of ensembles")
        members.append(read_residual_model(of_member, mine))
    return Ensemble.of(members, [float(weight) for weight in facts["weights"]])


FORMS: Mapping[str, Form] = {
    "roofline": Form(Roofline, _write_nothing, _read_nothing),
    "boosting": Form(BoostedResidual, _write_trees, _read_trees),
    "transformer": Form(Attentive, _write_transformer, _read_transformer),
    "ensemble": Form(Ensemble, _write_ensemble, _read_ensemble),
}
"""Predictor, as recipes name it -> how it is stored."""
