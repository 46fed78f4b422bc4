"""`joulecast gpus` and `joulecast zoo`: what there is to predict with."""

from __future__ import annotations

import typer

from .arguments import table

zoo_app = typer.Typer(help="The trained predictors.", no_args_is_help=True, rich_markup_mode=None)


def list_gpus() -> None:
    """List the GPU catalogue with what has been trained for each."""
    from ..hardware import gpus
    from ..zoo import entries

    trained = entries()
    rows = []
    for gpu in gpus().values():
        mine = [name.split("/", 1)[1] for name in trained if name.startswith(f"{gpu.slug}/")]
        rows.append(
            [
                gpu.aliases[0],
                gpu.architecture,
                f"{gpu.min_clock_mhz} to {gpu.max_clock_mhz}",
                str(gpu.boost_clock_mhz),
                f"{gpu.power_limit_w:g}",
                ", ".join(gpu.peak_flops),
                ", ".join(mine) or "none",
            ]
        )
    header = ["GPU", "architecture", "clocks MHz", "default", "cap W", "precisions", "predictors"]
    typer.echo(table(header, rows, frozenset({3, 4})))


@zoo_app.command("list")
def list_entries() -> None:
    """List the predictors of the zoo."""
    from ..zoo import entries

    typer.echo("\n".join(entries()) or "the zoo is empty")


@zoo_app.command("show")
def show_entry(name: str = typer.Argument(help="Name of an entry, such as a30/forest-inference.")) -> None:
    """Print the model card of a predictor."""
    from ..errors import unknown_name
    from ..resources import shipped
    from ..zoo import entries
    from ..zoo.entry import load_card
    from ..zoo.rendering import markdown

    if name not in entries():
        raise unknown_name("predictor", name, entries())
    typer.echo(markdown(load_card(shipped("zoo") / name)))
