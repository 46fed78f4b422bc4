"""Recipes and campaigns that travel with joulecast are called by their names, and files by their paths."""

from pathlib import Path

import pytest

from joulecast.errors import InputError, UnknownNameError
from joulecast.predictors.fitting.forms import load_recipe
from joulecast.profiling.campaign import load_campaign
from joulecast.system.resources import shipped


def test_a_name_and_its_file_are_the_same_recipe_and_campaign() -> None:
    assert load_recipe("forest") == load_recipe(shipped("predictors") / "forest.toml")
    assert load_campaign("small") == load_campaign(shipped("profiling") / "small.toml")


def test_a_file_in_this_folder_comes_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("forest").write_text("predictor = 'nothing'")
    with pytest.raises(UnknownNameError, match="predictor of a recipe"):
        load_recipe("forest")


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UnknownNameError, match="did you mean forest"):
        load_recipe("forests")
    with pytest.raises(UnknownNameError, match="unknown campaign"):
        load_campaign("smal")
    with pytest.raises(InputError, match="cannot be read"):
        load_recipe("mine/forests.toml")
