"""What was measured on each GPU, according to the cards of predictors."""

from joulecast.zoo.cards import Measured, measured_gpus


def test_the_zoo_knows_what_it_learned_from():
    found = measured_gpus()
    assert found["NVIDIA A30"].networks == 48  # 20 in inference, 28 in training
    assert found["NVIDIA A30"].has_power
    assert not found["Tesla T4"].has_power  # NeuSight measured only times.
    assert len(found["NVIDIA A100-PCIE-40GB"].clocks_mhz) == 12
    assert found["NVIDIA H200"].has_power  # kernels in half precision and below
    assert not found["NVIDIA L40S"].has_power
    assert "NVIDIA H100 NVL" not in found


def test_datasets_add_up_and_predictors_share():
    one, other = Measured(100, 5, (900.0,), True), Measured(50, 3, (600.0, 900.0))
    assert one + other == Measured(150, 8, (600.0, 900.0), True)
    assert one | other == Measured(100, 5, (600.0, 900.0), True)
    assert str(other) == "50 operations, 3 measurements of networks at 2 clocks (time only)"
