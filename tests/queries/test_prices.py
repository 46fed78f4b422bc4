"""Tables of prices and of carbon, against arithmetic by hand."""

import json
import math

import pytest

from joulecast import predict_run
from joulecast.cli.options import intensity
from joulecast.errors import InputError, UnknownNameError
from joulecast.queries.objectives import Tariff, cloud_prices, read_prices

TABLE = "gpu,price_per_hour,spot_per_hour,date\nL4,0.8,0.3,2026-11-01\np5.48xlarge,56,16,2026-11-01\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    return path


def test_a_table_gives_prices_some_of_them_at_spot(table):
    assert read_prices(table) == {"L4": 0.8, "p5.48xlarge": 56}
    assert read_prices(table, 0.25) == pytest.approx({"L4": 0.75 * 0.8 + 0.25 * 0.3, "p5.48xlarge": 46})
    # A machine's price is that of its eight boards.
    tariff = Tariff.of(read_prices(table), None, None)
    assert tariff.price_per_hour == {"NVIDIA L4": 0.8, "NVIDIA H100 80GB HBM3": 7.0}


def test_clouds_have_list_prices():
    assert cloud_prices("aws")["NVIDIA H100 80GB HBM3"] == pytest.approx(55.04 / 8)
    assert cloud_prices("google cloud", 0.5)["NVIDIA A100-SXM4-40GB"] == pytest.approx((3.673 + 1.804) / 2)
    assert "NVIDIA A10G" not in cloud_prices("AWS", 0.5)  # Its spot price is not known.
    assert Tariff.of("AWS", None, None).price_per_hour == cloud_prices("AWS")
    with pytest.raises(UnknownNameError, match="cloud with prices"):
        cloud_prices("Atlantis")
    with pytest.raises(InputError, match="out of range"):
        cloud_prices("AWS", 1.5)


@pytest.mark.parametrize(
    ("text", "what", "given"),
    [
        ("gpu,price_per_hour,colour\nL4,1,red\n", "unknown column", "colour"),
        ("gpu,spot_per_hour\nL4,1\n", "lacks a column", "spot_per_hour"),
        ("gpu,price_per_hour\n", "lacks a column or rows", "price_per_hour"),
        ("gpu,price_per_hour\nL4,much\n", "no number", "much"),
        ("gpu,price_per_hour\nL4,-1\n", "no number of 0 or more", "-1"),
        ("gpu,price_per_hour\nL4,1\n", "spot price is missing", "L4"),
        (None, "cannot be read", "bad.csv"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(tmp_path, text, what, given):
    path = tmp_path / "bad.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=what) as refused:
        read_prices(path, 0.5)
    assert given in refused.value.given
    assert refused.value.allowed
    assert refused.value.hint


def test_carbon_of_the_hours_of_a_run():
    """Two hours of 100 and 300 g: an hour and a half has 100 and half of 300, five hours two rounds and 100."""
    tariff = Tariff.of(None, None, [100, 300])
    kwh = 3.6e6
    assert tariff.carbon_g(kwh, 3600) == pytest.approx(100)
    assert tariff.carbon_g(kwh, 1.5 * 3600) == pytest.approx((100 + 150) / 1.5)
    assert tariff.carbon_g(kwh, 5 * 3600) == pytest.approx((2 * 400 + 100) / 5)
    assert tariff.carbon_g(kwh) == tariff.carbon_g(kwh, math.inf) == pytest.approx(200)
    for strange in ([], [100, -1], [True]):
        with pytest.raises(InputError, match="carbon is out of range"):
            Tariff.of(None, None, strange)


def test_carbon_by_region_and_of_making_gpus():
    assert Tariff.of(None, None, "eu-north-1").carbon_g_per_kwh == 2.73
    assert Tariff.of(None, None, "us-east4").carbon_g_per_kwh == Tariff.of(None, None, "us-east-1").carbon_g_per_kwh
    run = {"samples": 1e5, "precision": "bf16", "carbon": "us-west1"}
    plain, whole = (
        predict_run("bert_base", (32, 128), "2x L4", **run, embodied_g_per_hour=grams) for grams in (0.0, 5.0)
    )
    assert plain.carbon_kg == pytest.approx(79.23 * plain.wall_energy_j / 3.6e9)
    assert whole.carbon_kg - plain.carbon_kg == pytest.approx(2 * 5.0 * plain.time_s / 3.6e6)


def test_on_the_command_line(printed, table, tmp_path):
    (tmp_path / "hours.csv").write_text("100\n300\n")
    line = ["run", "bert_base", "32,128", "--gpu", "L4", "--samples", "1e5", "--precision", "bf16", "--json"]
    prices = ["--prices", f"{table},spot=0.5", "--intensity", str(tmp_path / "hours.csv")]
    found = json.loads(printed(*line, *prices))
    assert found["cost"] == pytest.approx(found["time_s"] / 3600 * (0.8 + 0.3) / 2)
    assert found["carbon_kg"] == pytest.approx(0.1 * found["wall_energy_j"] / 3.6e6)


def test_intensities_that_cannot_be_read(tmp_path):
    path = tmp_path / "hours.csv"
    for content, given in ((None, "No such file"), ("", "no numbers"), ("100\nhalf\n", "'half'")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(InputError, match="intensities of the hours cannot be read") as refused:
            intensity(str(path))
        assert given in refused.value.given
        assert refused.value.hint.startswith("give such a file")
