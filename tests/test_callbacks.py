"""Joules per step in the trackers of real trainers."""

import csv
import json
import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import joulecast
from joulecast.callbacks import StepEnergy, hugging_face, lightning
from joulecast.errors import InputError
from joulecast.extraction.models.torchvision_models import import_torchvision

torch = pytest.importorskip("torch", reason="training needs joulecast[torch]")


@pytest.fixture(scope="module")
def usable_torchvision():
    """Both trainers import torchvision where it is installed, and its operators do not load beside a torch for CPUs."""
    if find_spec("torchvision"):
        import_torchvision()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, x, labels=None):
        time.sleep(0.02)  # so that sensors see several steps
        return {"loss": (self.layer(x) - labels).square().mean()}


ROWS = [{"x": torch.ones(16), "labels": torch.zeros(16)} for _ in range(24)]
# Watts of the whole machine or of an estimate: between those of a phone and those of a rack.
WATTS = (0.5, 20_000)


def test_steps_of_a_loop_of_ones_own():
    with StepEnergy(0.25, every=5, devices=["estimate"]) as energy:
        started, found = time.monotonic(), []
        for _ in range(12):
            time.sleep(0.03)
            found.append(energy.step())
        took_s = time.monotonic() - started
    values = [each for each in found if each]
    assert [i for i, each in enumerate(found) if each] == [4, 9]
    assert all(each.keys() == {"energy/modelled_j_per_step", "energy/predicted_j_per_step"} for each in values)
    assert all(each["energy/predicted_j_per_step"] == 0.25 for each in values)
    # 12 steps share what was counted in all.
    assert energy.summary()["energy/mean_modelled_j_per_step"] == pytest.approx(energy.metering.energy_j / 12)
    assert WATTS[0] < energy.metering.energy_j / took_s < WATTS[1]
    with energy:  # a second training
        time.sleep(0.3)
        energy.step()
    assert energy.summary()["energy/mean_modelled_j_per_step"] == pytest.approx(energy.metering.energy_j)
    prediction = joulecast.predict("resnet18", (8, 3, 64, 64), "A30", mode="training")
    assert StepEnergy(prediction).predicted_j == prediction.energy_j
    with pytest.raises(InputError, match="not positive"):
        StepEnergy(every=0)


def test_what_is_paused_is_no_part_of_a_step_and_no_value_comes_before_the_sensors_moved():
    with StepEnergy(every=1, devices=["estimate"]) as energy:
        found, started = [], time.monotonic()
        for i in range(60):
            time.sleep(0.002)
            found.append(energy.step())
            if i == 29:
                energy.pause()  # an evaluation, which takes longer than all steps
                time.sleep(0.2 + 5 * (time.monotonic() - started))
                energy.resume()
    values = [each["energy/modelled_j_per_step"] for each in found if each]
    assert 0 < len(values) < 60
    assert min(values) > 0
    assert energy.summary()["energy/mean_modelled_j_per_step"] * 60 < 0.7 * energy.metering.energy_j


def test_predictions_stand_in_runs_of_mlflow(tmp_path, empty_mlflow_database):
    import mlflow

    from joulecast.mlflow import log

    prediction = joulecast.predict("resnet18", (8, 3, 64, 64), "A30")
    with pytest.raises(InputError, match="no MLflow run is active"):
        log(prediction)
    mlflow.set_tracking_uri(f"sqlite:///{shutil.copy(empty_mlflow_database, tmp_path)}")
    mlflow.create_experiment("mine", artifact_location=(tmp_path / "files").as_uri())
    mlflow.set_experiment("mine")
    with mlflow.start_run() as active:
        log(prediction)
    found = mlflow.get_run(active.info.run_id)
    assert found.data.metrics["predicted/energy_j"] == prediction.energy_j
    assert found.data.metrics["predicted/time_s_high"] == prediction.interval(0.9).time_s[1]
    assert found.data.tags["predicted.gpu"] == "NVIDIA A30"
    assert json.loads(mlflow.artifacts.load_text(f"{found.info.artifact_uri}/predicted.json"))["time_s"] > 0
    assert "<svg" in mlflow.artifacts.load_text(f"{found.info.artifact_uri}/predicted.svg")


@pytest.mark.slow  # importing it takes seconds
@pytest.mark.filterwarnings("ignore")  # of accelerate, about a machine without a GPU
def test_a_trainer_of_transformers(tmp_path, monkeypatch, usable_torchvision):
    transformers = pytest.importorskip("transformers", reason="needs joulecast[transformers]")
    pytest.importorskip("accelerate", reason="transformers trains with accelerate only")
    # The folder datasets/ of this checkout looks like the library of that name, if that is not installed.
    monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=2, report_to=[], use_cpu=True, save_strategy="no",
        logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(Net(), arguments, train_dataset=ROWS)
    energy = hugging_face(trainer, 0.5, every=4, devices=["estimate"])
    trainer.args.num_train_epochs = 1
    trainer.train()
    logged = [row for row in trainer.state.log_history if any(name.startswith("energy/") for name in row)]
    per_step = [row for row in logged if "energy/modelled_j_per_step" in row]
    assert [row["step"] for row in per_step] == [4, 8, 12]
    assert all(row["energy/predicted_j_per_step"] == 0.5 for row in per_step)
    assert logged[-1]["energy/mean_modelled_j_per_step"] == pytest.approx(energy.metering.energy_j / 12)


@pytest.mark.slow  # importing it takes seconds
@pytest.mark.filterwarnings("ignore")  # of Lightning, about torch and the number of its workers
def test_a_trainer_of_lightning(tmp_path, usable_torchvision):
    pl = pytest.importorskip("lightning.pytorch", reason="needs lightning")
    from lightning.pytorch.loggers import CSVLogger

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    callback = lightning(0.5, every=4, devices=["estimate"])
    logger = CSVLogger(tmp_path)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=logger, callbacks=[callback], enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, log_every_n_steps=1000, accumulate_grad_batches=2,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(ROWS))  # two rows a step
    with (Path(logger.log_dir) / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    steps = [row for row in rows if row["energy/modelled_j_per_step"]]
    assert [int(row["step"]) for row in steps] == [4, 8, 12]
    assert all(float(row["energy/predicted_j_per_step"]) == 0.5 for row in steps)
    mean = callback.energy.metering.energy_j / 12
    assert callback.energy.summary()["energy/mean_modelled_j_per_step"] == pytest.approx(mean)
