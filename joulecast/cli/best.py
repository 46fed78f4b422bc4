"""`joulecast best`: choose a GPU and its clock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ..operations.inputs import titled
from ..units import si
from .options import COMPARED, AsJson, Asked, Plot, Shown, asking
from .printing import clock_text, left_out_lines, table, tell

if TYPE_CHECKING:
    from ..queries import Choices


@asking(*COMPARED)
def best(
    asked: Asked,
    max_time: Annotated[float | None, typer.Option(help="Deadline: most seconds that an iteration may take.")] = None,
    max_power: Annotated[
        float | None, typer.Option(help="Power budget: most watts of mean board power over an iteration.")
    ] = None,
    top: Shown = 10,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the choices as CSV.")] = False,
    plot: Plot = None,
) -> None:
    """Choose the best GPU and clock for a job.

    Shows the best clock of each GPU, precision and batch size; the best choice comes first.
    """
    from ..api.choosing import best as best_of

    choices = best_of(max_time_s=max_time, max_power_w=max_power, **asked)
    if as_json:
        typer.echo(json.dumps([choice.to_dict() for choice in choices], indent=1))
    else:
        tell(choices, False, as_csv, lambda: _text(asked, choices, top))
    if plot is not None:
        choices.plot(plot)


def _text(asked: Asked, choices: Choices, top: int) -> str:
    from ..queries.choice import incomplete_notes
    from ..queries.objectives import OBJECTIVES

    per_sample = " per sample" if len({choice.batch_size for choice in choices}) > 1 else ""
    words = OBJECTIVES[asked["objective"]].words.removesuffix(per_sample)
    job = f"{titled(asked.given['model'], asked['input_shape'])}, {asked['mode']}"
    return "\n".join(
        [
            f"{job}, per iteration: least {words}{per_sample}\n",
            _choices_text(choices, top),
            *incomplete_notes(choices),
            *left_out_lines(choices.left_out),
        ]
    )


def _choices_text(choices: Choices, top: int) -> str:
    from ..queries.objectives import OBJECTIVES

    shown = choices[: top or None]
    several_precisions = len({choice.precision for choice in choices}) > 1
    several_batches = len({choice.batch_size for choice in choices}) > 1
    incomplete = any(choice.uncovered for choice in choices)
    objective = OBJECTIVES[shown[0].objective]
    extra = several_batches or objective.name not in ("energy", "time", "edp")
    header = ["", "GPU", "clock MHz", "time", "power", "energy", "EDP", "measured", "predictor"]
    rows = [
        [
            "best" if place == 0 else "tied" if choice.tied else str(place + 1),
            choice.alias,
            clock_text(choice),
            si(choice.time_s, "s"),
            si(choice.power_w, "W"),
            si(choice.energy_j, "J"),
            si(choice.edp_js, "Js"),
            "yes" if choice.measured else "no",
            choice.predictor,
            *([choice.precision] if several_precisions else []),
            *([str(choice.batch_size)] if several_batches else []),
            *([objective.text(choice.value)] if extra else []),
            *([choice.uncovered_text] if incomplete else []),
        ]
        for place, choice in enumerate(shown)
    ]
    header += ["precision"] if several_precisions else []
    header += ["batch"] if several_batches else []
    header += [objective.words + (" per sample" if several_batches else "")] if extra else []
    header += ["not covered"] if incomplete else []
    text = table(header, rows, frozenset({2, 3, 4, 5, 6}))
    if len(choices) > len(shown):
        text += f"\nand {len(choices) - len(shown)} more"
    return text
