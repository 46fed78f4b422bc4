"""The command line speaks of options where the library speaks of arguments."""

from joulecast.cli.options import in_option_words


def test_arguments_become_options_and_parts_of_words_do_not() -> None:
    assert in_option_words("price_per_hour (a number), price_per_kwh") == "--price-per-hour (a number), --price-per-kwh"
    assert in_option_words("max_time_seconds and my_max_time_s") == "max_time_seconds and my_max_time_s"
    assert in_option_words("tensor_parallel=1, context_parallel=2") == "--tensor-parallel=1, --context-parallel=2"


def test_mode_and_training_are_the_same_question(printed) -> None:
    asked = ("predict", "resnet18", "8,3,64,64", "--gpu", "A30", "--json")
    assert printed(*asked, "--training") == (text := printed(*asked, "--mode", "training"))
    assert '"mode": "training"' in text
