"""`joulecast train-kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .printing import table


def train_kernels(
    dataset: Annotated[list[Path], typer.Option(help="Folder of a dataset; repeat it for several.")],
    recipe: Annotated[Path, typer.Option(help="A recipe by name (kernels) or a TOML file.")],
    zoo: Annotated[Path, typer.Option(help="Zoo folder to write the entry into.")] = Path("zoo"),
    networks_only: Annotated[
        bool,
        typer.Option(
            "--networks-only",
            help="Learn only how networks differ from loops, and their host cost. Kernels stay unchanged.",
        ),
    ] = False,
) -> None:
    """Learn device times of kernels in half precision and below, and write the zoo entry that predictors use for them.

    Where datasets contain networks, it also learns how much longer kernels take inside networks. The zoo's predictor
    for any GPU predicts the rest of each network.

    Errors are measured on sizes, GPUs and generations that are left out. The entry itself is fitted on all data.
    """
    from ..datasets import load
    from ..errors import InputError
    from ..predictors.recipes import load_kernel_recipe
    from ..zoo.catalogue import ANY_GPU, KERNELS_ENTRY
    from ..zoo.entries.any_gpu_entry import AnyGpuEntry
    from ..zoo.entries.entry import load_entry
    from ..zoo.entries.kernels_entry import load_kernels
    from ..zoo.kernels_training import learn_networks
    from ..zoo.kernels_training import train_kernels as train
    from ..zoo.renewal import renew_hosts
    from .recipes import Loaded, all_networks

    settings = load_kernel_recipe(recipe)
    loaded = [Loaded.of(folder, load(folder)) for folder in dataset]
    networks = all_networks(loaded)
    if networks_only and not networks:
        raise InputError(
            "no dataset holds a network",
            given=", ".join(map(str, dataset)),
            hint="add a dataset with whole networks, or leave out --networks-only",
        )
    if networks_only:
        renew_hosts(zoo / ANY_GPU, networks)
    base = load_entry(zoo / ANY_GPU, AnyGpuEntry) if networks else None
    data = [(each.folder, each.dataset) for each in loaded]
    if networks_only and base is not None:
        trained = learn_networks(data, load_kernels(zoo / KERNELS_ENTRY), networks, base)
    else:
        trained = train(data, settings, networks, base)
    typer.echo(trained.save(zoo))
    for quantity, errors in (("time", trained.card.errors), ("power", trained.card.power_errors)):
        cells = [
            [names, split, str(count), f"{100 * median:.1f} %", f"{100 * mean:.1f} %"]
            for names, rows in errors.items()
            for split, (count, median, mean) in rows.items()
        ]
        typer.echo(table(["kernels", "left out", "count", f"{quantity}: median", "mean"], cells, frozenset({2, 3, 4})))
