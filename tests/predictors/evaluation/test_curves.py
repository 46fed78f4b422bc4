"""Learning curves of what is fitted pass by pass."""

import numpy as np
import pytest
from simulated_measurements import simulated_gpu

from joulecast.predictors.fitting.fit import fit_on_all
from joulecast.predictors.recipes import TransformerRecipe


def test_a_transformer_has_its_losses_by_epoch():
    pytest.importorskip("torch")
    pytest.importorskip("xgboost")
    tiny = TransformerRecipe(width=8, heads=2, kind_layers=1, kind_feed_forward=2, epochs=6, batch=32, together=0.3)
    curves = fit_on_all([simulated_gpu("A30")], (), tiny).curves
    assert set(curves) == {f"transformer/loss_{how}" for how in ("alone", "together")}
    alone = np.array(curves["transformer/loss_alone"])
    assert len(alone) == 6
    assert np.nanmean(alone[-2:]) < np.nanmean(alone[:2])
