"""The command line speaks of options where the library speaks of arguments."""

import pytest

from joulecast.cli import main
from joulecast.cli.option_words import in_option_words


def test_arguments_become_options_and_parts_of_words_do_not() -> None:
    assert in_option_words("price_per_hour (a number), price_per_kwh") == "--price-per-hour (a number), --price-per-kwh"
    assert in_option_words("max_time_seconds and my_max_time_s") == "max_time_seconds and my_max_time_s"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["best", "resnet18", "1,3,224,224", "--objective", "cost"], "allowed: --price-per-hour"),
        (["best", "resnet18", "1,3,224,224", "--max-time", "-2"], "--max-time is a positive number"),
        (["predict", "resnet18", "--gpu", "A30"], "a SHAPE such as 32,3,224,224"),
        (["predict", "resnet18", "1,3,64,64", "--gpu", "A30", "--training", "--mode", "inference"], "two modes"),
    ],
)
def test_errors_name_options(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert said in capsys.readouterr().err


def test_mode_and_training_are_the_same_question(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for option in (["--training"], ["--mode", "training"]):
        with pytest.raises(SystemExit) as exit_:
            main(["predict", "resnet18", "8,3,64,64", "--gpu", "A30", "--json", *option])
        assert not exit_.value.code
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert '"mode": "training"' in printed[0]
