"""The MLflow registry: entries as versions of registered models, with the aliases champion and challenger.

Users load models by alias, and an alias moves only in the last step: first the files are stored, then the version with
all its tags, then the alias. A process that is killed in between leaves the alias where it was. Running the same
command again completes its work. Requests end within seconds, and every failure is one error with a next step.
"""

from __future__ import annotations

import http
import http.client
import json
import re
import sqlite3
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ..errors import InputError, ZooError
from ..hardware import find_device
from ..operations.operation import MODES, Operation
from ..system.limits import fetch, within
from .cards import git_commit
from .entry import not_by_itself
from .files import StoredEntry, library_versions, put_in_place, sha256_of
from .kinds import KERNELS_PREDICTOR
from .server import SQLITE, connected, credentials, default_uri, experiment
from .store import REGISTERED, admit, pulled, pulled_folder

ENTRY = "entry"
"""Name of an entry as an artifact of its model, and of its folder below `artifacts/`."""
ENTRY_SHA256 = "joulecast.entry_sha256"
"""Tag of a version: sha256 of the entry's manifest."""
OUTPUTS = ("time_s", "power_w", "energy_j", "device_time_s", "dynamic_energy_j")
"""Columns that the logged model returns, one row per operation."""
CHAMPION, CHALLENGER = "champion", "challenger"

_MODEL_CODE = Path(__file__).with_name("mlflow_model.py")
_URI = re.compile(r"models:/(?P<name>[\w.-]{1,120})(?:@(?P<alias>[\w.-]{1,80})|/(?P<version>[0-9]{1,9}))")
_MOST_BYTES = 128 << 20
_ALIAS_SECONDS = 60.0
_ANSWER_SECONDS = 2.0  # to say what a version holds
_SECONDS = 300.0  # to look up and fetch a version, the largest of which has 128 MB


def model_name(card: Mapping[str, Any]) -> str:
    """Name of the registered model. There is one per GPU and mode, and one for predictors for any GPU.

    Raises ZooError: the entry is of device times of kernels, which predicts nothing by itself.
    """
    if card["predictor"] == KERNELS_PREDICTOR:
        raise not_by_itself(card["name"])
    if "gpu" not in card:
        return "joulecast-any-gpu"
    return f"joulecast-{find_device(card['gpu']).slug}-{card['mode']}"


def log_model(mlflow: Any, entry: StoredEntry) -> str:
    """Log an entry as a model of the active run, and return the model's URI."""
    import pandas as pd
    from mlflow.types.schema import ColSpec, Schema

    # A predictor for any GPU is told the GPU of each operation.
    gpu = {"gpu": "NVIDIA A30"} if "gpu" not in entry.card else {}
    columns = [ColSpec("string", name) for name in ("operation", *gpu)]
    columns.append(ColSpec("double", "clock_mhz", required=False))
    mode = entry.card.get("mode", "inference")
    operations = [Operation("relu", [(32, channels, 56, 56)], mode=mode) for channels in (64, 256)]
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        # MLflow warns of missing type hints, from which it would infer the signature, but the signature is given here.
        warnings.simplefilter("ignore", UserWarning)
        # Under a fixed name, whatever the folder is called, and only the files that belong to the entry.
        info = mlflow.pyfunc.log_model(
            name=model_name(entry.card),
            python_model=str(_MODEL_CODE),
            artifacts={ENTRY: str(put_in_place(Path(scratch) / ENTRY, entry.files))},
            signature=mlflow.models.ModelSignature(
                inputs=Schema(columns), outputs=Schema([ColSpec("double", name) for name in OUTPUTS])
            ),
            input_example=pd.DataFrame([{"operation": json.dumps(each.to_dict()), **gpu} for each in operations]),
            # Stated here, because MLflow would otherwise load the model in another process to find out.
            pip_requirements=[f"joulecast=={library_versions()['joulecast']}"],
            metadata={"entry_sha256": entry.sha256},
        )
        return str(info.model_uri)


@dataclass(frozen=True)
class Registered:
    """A version of a registered model, and what `register` did, in words."""

    name: str
    version: str
    said: str


def register(folder: Path, uri: str | None = None, *, run_id: str | None = None) -> Registered:
    """Register an entry as a version of the model of its GPU and mode.

    The first version becomes champion, later ones challenger. An entry is registered once only. Where an earlier
    attempt was killed, the missing steps are done now. Raises MissingDependencyError: mlflow is not installed. Raises
    TrackingError: the server cannot be reached, or denies access. Raises ZooError: the entry is damaged.

    Args:
        run_id: The run that trained it and logged the model; None to make one.
    """
    entry = StoredEntry.of(folder)
    name = model_name(entry.card)
    served = {"gpu": str(entry.card.get("gpu", "any")), "mode": str(entry.card.get("mode", ",".join(MODES)))}
    named = {"predictor": str(entry.card["predictor"]), **served}
    with connected(uri, "the entry was not registered") as mlflow:
        client = mlflow.MlflowClient()
        try:
            client.create_registered_model(
                name, tags=served, description="Time, power and energy of PyTorch operations"
            )
        except mlflow.exceptions.MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        versions = client.search_model_versions(f"name = '{name}'")
        mine = [int(each.version) for each in versions if each.tags.get(ENTRY_SHA256) == entry.sha256]
        if not mine:
            outputs = None if run_id is None else mlflow.get_run(run_id).outputs
            if outputs and outputs.model_outputs:
                source = f"models:/{outputs.model_outputs[-1].model_id}"
            else:
                mlflow.set_experiment(experiment_id=experiment(mlflow, uri))
                tags = {"stage": "register", "git_commit": git_commit(), **named}
                with mlflow.start_run(run_name=f"register {entry.card['name']}", tags=tags) as run:
                    source, run_id = log_model(mlflow, entry), str(run.info.run_id)
            # With all its tags in one request: a version is never without them.
            tags = {ENTRY_SHA256: entry.sha256, "joulecast.entry": str(entry.card["name"]), **named}
            model_id = source.removeprefix("models:/")
            made = client.create_model_version(name, source, run_id=run_id, tags=tags, model_id=model_id)
            mine = [int(made.version)]
        version, aliases = str(max(mine)), client.get_registered_model(name).aliases
        if str(aliases.get(CHAMPION)) == version:
            return Registered(name, version, "is the champion")
        if CHAMPION not in aliases:
            client.set_registered_model_alias(name, CHAMPION, version)
            return Registered(name, version, "is the champion, because it is the first version")
        client.set_registered_model_alias(name, CHALLENGER, version)
        said = f"is the challenger; `joulecast zoo promote {name}` compares it with the champion"
        return Registered(name, version, said)


_NOT_LOADED = "the model was not loaded; the predictors that ship with joulecast need no registry"


def registry_folder(model: str, uri: str | None = None) -> Path:
    """Fetch the entry that "models:/NAME@ALIAS" or "models:/NAME/VERSION" names, and return its folder in the cache.

    A version is fetched once and needs no mlflow after that. Once a minute, the registry is asked which version an
    alias stands for, and which entry a version holds: a database that was made anew has others under the same numbers.
    A registry that does not answer about a version in the cache is taken to hold it still.
    Raises InputError: the text does not have this form. MissingDependencyError: mlflow is not installed. TrackingError:
    the server cannot be reached or denies access, or there is no such model. ZooError: the version was not registered
    by joulecast, or is damaged.
    """
    match = _URI.fullmatch(model)
    if match is None:
        raise InputError(
            "this is not the name of a model in a registry",
            given=model,
            allowed="models:/NAME@ALIAS or models:/NAME/VERSION",
        )
    uri, name, minute = uri or default_uri(), match["name"], int(time.monotonic() / _ALIAS_SECONDS)
    if match["version"]:
        version, holds = match["version"], _holds(uri, name, match["version"], minute)
    else:
        version, holds = version_of(uri, name, match["alias"], minute)
    if folder := _cached(name, version, uri, holds):
        return folder
    with connected(uri, _NOT_LOADED, reading=True) as mlflow:
        return within(_SECONDS, lambda: fetched(mlflow, name, version, uri))


@lru_cache(maxsize=64)
def version_of(uri: str, name: str, alias: str, minute: int) -> tuple[str, str]:
    """The version behind an alias, and the sha256 of its entry, as the registry says at a minute.

    Raises as `registry_folder` does.
    """
    with connected(uri, _NOT_LOADED, reading=True) as mlflow:
        client = mlflow.MlflowClient()
        found = within(_SECONDS, lambda: client.get_model_version_by_alias(name, alias))
        return str(found.version), found.tags.get(ENTRY_SHA256, "")


@lru_cache(maxsize=64)
def _holds(uri: str, name: str, version: str, minute: int) -> str | None:
    """The sha256 of the entry that a version holds at a minute, asked without mlflow, which takes seconds to import.

    Empty if there is no such version any more; None if the registry does not say.
    """
    with suppress(OSError, http.client.HTTPException, ValueError, LookupError, TypeError, sqlite3.Error):
        if uri.startswith(SQLITE):
            query = "SELECT value FROM model_version_tags WHERE name = ? AND version = ? AND key = ?"
            with closing(sqlite3.connect(f"file:{uri.removeprefix(SQLITE)}?mode=ro", uri=True)) as database:
                found = database.execute(query, (name, int(version), ENTRY_SHA256)).fetchone()
            return str(found[0]) if found else ""
        if uri.startswith("http"):
            asked = urlencode({"name": name, "version": version})
            address = f"{uri.rstrip('/')}/api/2.0/mlflow/model-versions/get?{asked}"
            request = urllib.request.Request(address, headers=credentials())  # noqa: S310 (http or https)
            status, body = fetch(request, seconds=_ANSWER_SECONDS, most_bytes=1 << 20)
            if status == http.HTTPStatus.NOT_FOUND:
                return ""
            return next(str(t["value"]) for t in json.loads(body)["model_version"]["tags"] if t["key"] == ENTRY_SHA256)
    return None


def _cached(name: str, version: str, uri: str, holds: str | None) -> Path | None:
    """The folder of a version in the cache, if it is the entry with this sha256 or that is None; otherwise None."""
    known = name_in_cache(name, version, uri)
    row = pulled().get(known)
    return pulled_folder(known) if row is not None and holds in (None, row.manifest_sha256) else None


def pull_model(model: str, *, replace: bool = False) -> str:
    """Copy a model of a registry into the cache under the name of its entry, and return that name."""
    entry = StoredEntry.of(registry_folder(model))
    admit(entry, str(entry.card["name"]), model, replace=replace)
    return str(entry.card["name"])


def name_in_cache(name: str, version: str, uri: str) -> str:
    """The name under which the cache has a version of a model of a registry."""
    return f"{REGISTERED}{sha256_of(f'{uri} {name} {version}'.encode())[:32]}"


def fetched(mlflow: Any, name: str, version: str, uri: str | None) -> Path:
    """The folder of a version in the cache. Raises ZooError: it was not registered by joulecast, or is damaged."""
    uri, where = uri or default_uri(), f"models:/{name}/{version}"
    digest = mlflow.MlflowClient().get_model_version(name, version).tags.get(ENTRY_SHA256)
    if folder := _cached(name, version, uri, digest or ""):
        return folder
    if digest is None:
        raise ZooError(
            "this model was not registered by joulecast",
            given=where,
            allowed=f"versions with the tag {ENTRY_SHA256}",
            hint="`joulecast zoo push ENTRY models:/` registers one",
        )
    alike = next((other for other, row in pulled().items() if row.manifest_sha256 == digest), "")
    folder = pulled_folder(alike)
    if folder is not None:
        entry = StoredEntry.of(folder)
    else:
        below = f"{where}/artifacts/{ENTRY}"
        size_bytes = sum(each.file_size or 0 for each in mlflow.artifacts.list_artifacts(artifact_uri=below))
        if size_bytes > _MOST_BYTES:
            raise ZooError("a zoo entry is larger than allowed", given=size_bytes, allowed=f"{_MOST_BYTES} bytes")
        with tempfile.TemporaryDirectory() as scratch:
            entry = StoredEntry.of(mlflow.artifacts.download_artifacts(artifact_uri=below, dst_path=scratch))
    if entry.sha256 != digest:
        raise ZooError(
            "the files of this version were changed after it was registered",
            given=where,
            hint="ask the owner of the registry",
        )
    return admit(entry, name_in_cache(name, version, uri), where)
