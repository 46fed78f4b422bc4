"""Networks and operations that are predicted again: the same bits, without asking the regressors again."""

import joulecast
from joulecast.predictors.chip import ChipPart

SHAPE = (2, 3, 99, 99)


def test_regressors_are_asked_once_for_an_operation(monkeypatch):
    joulecast.predict("resnet18", (1, 3, 64, 64), "A30")  # loads the predictor, which makes its golden prediction
    joulecast.predict("resnet18", (1, 3, 64, 64), "A30", predictor="xgboost")
    asked, learn = [], ChipPart._learned_loops

    def noted(self, operations, *rest):
        asked.append(len(operations))
        return learn(self, operations, *rest)

    monkeypatch.setattr(ChipPart, "_learned_loops", noted)
    once = joulecast.predict("resnet18", SHAPE, "A30")
    assert len(asked) == 1
    assert joulecast.predict("resnet18", SHAPE, "A30") == once
    assert joulecast.predict("resnet18", SHAPE, "A30", 900).time_s > once.time_s
    assert len(asked) == 1
    joulecast.predict("resnet18", SHAPE, "A30", power_limit_w=120)
    assert len(asked) == 1
    joulecast.predict("resnet34", SHAPE, "A30")  # the same layers, more often
    assert len(asked) == 1
    joulecast.predict("resnet18", SHAPE, "A30", predictor="xgboost")
    assert len(asked) == 2


def test_other_sizes_and_precisions_are_other_networks():
    times = {
        joulecast.predict("resnet18", (batch, 3, 64, 64), "A30", precision=precision).time_s
        for batch in (1, 64)
        for precision in ("fp32", "fp16")
    }
    assert len(times) == 4
