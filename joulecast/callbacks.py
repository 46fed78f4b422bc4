"""Joules of training steps, predicted and measured, in the trackers of Hugging Face's Trainer and of Lightning."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Self

from .errors import InputError, needing
from .metering.meter import Meter
from .metering.result import Metering
from .predictors.networks.prediction import Prediction


class StepEnergy:
    """Measures the joules of training steps while they run.

    A step is one of the optimizer, with all batches whose gradients it accumulates. `hugging_face` and `lightning`
    count by themselves; in a loop of your own, call `step` after each step, and `pause` and `resume` around what is
    no training.

    Args:
        predicted: Prediction of a step (`joulecast.predict(..., mode="training", optimizer="adamw")`), or its joules;
            None for none.
        every: Steps between two values at least. The sensors of a machine change about ten times a second, and
            no value comes before they did.
        devices: Devices to measure; see `joulecast.measure`.

    Raises:
        InputError: The number of steps is not positive, or the prediction has no energy.
    """

    def __init__(
        self, predicted: Prediction | float | None = None, *, every: int = 10, devices: Collection[str] | None = None
    ) -> None:
        if every < 1:
            raise InputError("the number of steps between two values is not positive", given=every, allowed="from 1")
        self.every = every
        self.predicted_j = predicted.known_energy_j if isinstance(predicted, Prediction) else predicted
        self.metering: Metering | None = None
        """What was measured in all; None before the end of training."""
        self._meter = Meter(devices, title="training")
        self._counted: frozenset[str] = frozenset()  # Devices that are no parts of others.
        self._source = "missing"
        self._steps, self._last_step, self._last_j = 0, 0, 0.0
        self._paused_at_j: float | None = None
        self._paused_j = 0.0

    def __enter__(self) -> Self:
        self._meter.__enter__()
        if self._meter.measures:
            metering = self._meter.result()
            self._counted = frozenset(each.device.name for each in metering.devices if each.device.counted)
            self._source = metering.source
        self._steps, self._last_step, self._last_j = 0, 0, self._joules()
        self._paused_at_j, self._paused_j = None, 0.0
        return self

    def __exit__(self, *error: Any) -> None:
        self.resume()
        self._meter.__exit__(*error)
        self.metering = self._meter.result() if self._meter.measures else None

    def step(self) -> dict[str, float]:
        """Count a step that has ended.

        Returns:
            Name of a metric -> joules per step since the last value, and predicted ones; empty between two values.
        """
        self._steps += 1
        if self._steps - self._last_step < self.every or not self._counted:
            return {}
        now_j = self._joules()
        if now_j <= self._last_j:
            return {}
        measured = (now_j - self._last_j) / (self._steps - self._last_step)
        self._last_step, self._last_j = self._steps, now_j
        return self._metrics(measured, self._source)

    def pause(self) -> None:
        """What follows, such as an evaluation, is no part of a step."""
        if self._counted and self._paused_at_j is None:
            self._paused_at_j = self._joules()

    def resume(self) -> None:
        """Training goes on."""
        if self._paused_at_j is not None:
            paused_j = self._joules() - self._paused_at_j
            self._paused_at_j = None
            self._paused_j += paused_j
            self._last_j += paused_j

    def summary(self) -> dict[str, float]:
        """The mean over all steps, after the end; empty if no device could be read."""
        if self.metering is None or self.metering.energy_j is None or not self._steps:
            return {}
        return self._metrics((self.metering.energy_j - self._paused_j) / self._steps, self.metering.source, "mean_")

    def _metrics(self, joules: float, source: str, prefix: str = "") -> dict[str, float]:
        metrics = {f"energy/{prefix}{source}_j_per_step": joules}
        return metrics if self.predicted_j is None else {**metrics, "energy/predicted_j_per_step": self.predicted_j}

    def _joules(self) -> float:
        totals = self._meter.totals()
        return sum(totals[name]["energy_j"] or 0.0 for name in self._counted if name in totals)


def hugging_face(trainer: Any, predicted: Prediction | float | None = None, **options: Any) -> StepEnergy:
    """Log joules per step of a Trainer of transformers, before its `train()`, to all trackers that it reports to.

    The other arguments are those of `StepEnergy`.

    Returns:
        The measurement; its `metering` has all after training.

    Raises:
        MissingDependencyError: transformers is not installed.
        InputError: See `StepEnergy`.
    """
    with needing("logging to a Trainer needs transformers", "pip install transformers accelerate"):
        from transformers import TrainerCallback
    energy = StepEnergy(predicted, **options)

    class Log(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            energy.__enter__()

        def on_step_end(self, _: Any, __: Any, control: Any, **___: Any) -> None:
            if found := energy.step():
                trainer.log(found)
            self.on_epoch_end(None, None, control)

        def on_epoch_end(self, _: Any, __: Any, control: Any, **___: Any) -> None:
            if control.should_evaluate:
                energy.pause()

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            energy.resume()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            energy.__exit__(None, None, None)
            if found := energy.summary():
                trainer.log(found)

    trainer.add_callback(Log())
    return energy


def lightning(predicted: Prediction | float | None = None, **options: Any) -> Any:
    """A callback for Lightning's Trainer that logs joules per step to its logger; its arguments are `StepEnergy`'s.

    Returns:
        The callback; its `energy` is the measurement.

    Raises:
        MissingDependencyError: lightning is not installed.
        InputError: See `StepEnergy`.
    """
    with needing("logging in Lightning needs lightning", "pip install lightning"):
        from lightning.pytorch import Callback

    class Log(Callback):  # type: ignore[misc,unused-ignore]
        energy = StepEnergy(predicted, **options)
        _steps = 0  # of the optimizer; a batch whose gradients are only accumulated is no step.

        def _log(self, trainer: Any, found: dict[str, float]) -> None:
            if found and trainer.logger is not None:
                trainer.logger.log_metrics(found, step=trainer.global_step)

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self._steps = trainer.global_step
            self.energy.__enter__()

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            if trainer.global_step > self._steps:
                self._steps = trainer.global_step
                self._log(trainer, self.energy.step())

        def on_validation_start(self, trainer: Any, module: Any) -> None:
            self.energy.pause()

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            self.energy.resume()

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.energy.__exit__(None, None, None)
            self._log(trainer, self.energy.summary())

    return Log()
