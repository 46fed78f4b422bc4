"""`joulecast measure`: measure the energy of a program, and work with recordings of such measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, JoulecastError, unknown_name
from ..units import number, si
from .options import AsJson, Plot
from .printing import table

if TYPE_CHECKING:
    from ..metering.gpu_shares import GpuShare
    from ..metering.result import Metering

_RUN, _ZEUS = "run", "zeus"


class _MeasureGroup(typer.core.TyperGroup):
    """A group in which `joulecast measure [OPTIONS] -- COMMAND` means `joulecast measure run [OPTIONS] -- COMMAND`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            args = [_RUN, *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_MeasureGroup,
    no_args_is_help=True,
    help="Measure the energy of a program: joulecast measure [OPTIONS] -- COMMAND. See `joulecast measure run --help`.",
)

Recordings = Annotated[list[Path], typer.Argument(help="Recordings that `--out` wrote.")]
Price = Annotated[float | None, typer.Option("--price-per-kwh", help="Price of a kilowatt-hour, to print the cost.")]
Carbon = Annotated[str | None, typer.Option(help="Grams of CO2 per kWh, or a country such as DE.")]


@app.command(_RUN, context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.")],
    devices: Annotated[
        str | None,
        typer.Option(
            help="cpu, ram, gpu or names such as gpu1, separated by commas; or estimate. Default: all that have a "
            "sensor, or an estimate if there is none."
        ),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between samples.")] = 0.1,
    out: Annotated[Path | None, typer.Option(help="Write a recording to this file.")] = None,
    metrics: Annotated[
        int | None, typer.Option(help="Serve metrics for Prometheus on this port while the program runs.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(help="zeus: also read the same devices through Zeus, and compare.")
    ] = None,
    price_per_kwh: Price = None,
    carbon: Carbon = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Run a command and measure its energy.

    The results are printed to the standard error. The exit code is that of the command; 1 if it succeeds but the
    recording cannot be written completely.
    """
    from ..metering.command import measure_command
    from ..metering.exporting import ZeusCheck, differences
    from ..metering.machine import chosen_devices
    from ..metering.meter import Meter

    chosen = None if devices is None else tuple(chosen_devices(devices))
    meter = Meter(chosen, interval_s=interval, out=out, title=Path(command[0]).name, command=command)
    if check not in (None, _ZEUS):
        raise unknown_name("check", check, [_ZEUS])
    second = None if check is None else ZeusCheck()
    code, metering = measure_command(command, meter, metrics, second)
    if metering is not None:
        text = json.dumps(metering.to_dict()) if as_json else _text(metering, price_per_kwh, carbon)
        typer.echo(text, err=True)
        if plot is not None:
            metering.plot(plot)
        if second is not None:
            typer.echo("\n".join(differences(metering, second.energy_j)), err=True)
        if not code and not all(recording.complete for recording in metering.recordings):
            raise JoulecastError(
                "the recording is not complete",
                given=str(out or "a temporary file"),
                hint="make room on its disk, and measure again",
            )
    raise typer.Exit(code)


@app.command()
def show(
    recordings: Recordings,
    price_per_kwh: Price = None,
    carbon: Carbon = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Show the energy and time of recordings."""
    metering = _read(recordings)
    if plot is not None:
        metering.plot(plot)
    typer.echo(json.dumps(metering.to_dict(), indent=1) if as_json else _text(metering, price_per_kwh, carbon))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="A recording.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Compare two recordings, device by device and window by window."""
    one, other = _read([first]), _read([second])
    rows = []
    by_name = {found.device.name: found for found in other.devices}
    for found in one.devices:
        if again := by_name.get(found.device.name):
            ratio = f"{again.energy_j / found.energy_j:.3f}" if found.energy_j else "-"
            rows.append([found.device.name, si(found.energy_j, "J"), si(again.energy_j, "J"), ratio])
    duration = f"{other.duration_s / one.duration_s:.3f}" if one.duration_s else "-"
    rows.append(["time", si(one.duration_s, "s"), si(other.duration_s, "s"), duration])
    typer.echo(table(["", first.name, second.name, "second / first"], rows, frozenset({1, 2, 3})))
    typer.echo("")
    typer.echo(str(one.tree().compare(other.tree())))


@app.command()
def merge(recordings: Recordings, as_json: AsJson = False) -> None:
    """Combine recordings of several machines: energies are added, and the longest time counts."""
    metering = _read(recordings)
    typer.echo(json.dumps(metering.to_dict(), indent=1) if as_json else _text(metering, None, None))


def _read(paths: list[Path]) -> Metering:
    from ..metering.reading_recordings import read_recording
    from ..metering.result import Metering, merged

    if not paths:
        raise InputError(
            "there is nothing to show",
            given="no recording",
            hint="name recordings that `joulecast measure --out FILE` wrote",
        )
    title = paths[0].stem if len(paths) == 1 else f"{len(paths)} recordings"
    return merged(title, [Metering(path.stem, (read_recording(path),)) for path in paths])


def _intensity(carbon: str | None) -> float | str | None:
    try:
        return None if carbon is None else float(carbon)
    except ValueError:
        return carbon


def _text(metering: Metering, price_per_kwh: float | None, carbon: str | None) -> str:
    from ..queries.objectives import Tariff

    tariff = Tariff.of(None, price_per_kwh, _intensity(carbon))
    rows = [
        [
            found.name if len(metering.recordings) > 1 else found.device.name,
            found.device.component + ("" if found.device.counted else " (part of another)"),
            f"{'' if found.complete else '> '}{si(found.energy_j, 'J')}",
            si(found.mean_w, "W"),
            si(found.peak_w, "W"),
            si(found.energy_j - found.idle_j, "J") if found.idle_j is not None else "-",
            found.device.method,
        ]
        for found in metering.devices
    ]
    parts = [str(metering)]
    if rows:
        header = ["device", "component", "energy", "mean", "peak", "above idle", "source"]
        parts += ["", table(header, rows, frozenset({2, 3, 4, 5}))]
    if metering.cpu_share is not None:
        parts += [
            "",
            f"the program used {100 * metering.cpu_share:.0f} % of the CPU time that was used on this machine",
        ]
    parts += [_share_text(name, share) for name, share in metering.gpu_shares.items()]
    if any(recording.windows for recording in metering.recordings):
        parts += ["", metering.tree().to_text()]
    else:
        parts += [f"note: {note}" for note in metering.notes]
    if metering.energy_j is None:
        return "\n".join(parts)
    if price_per_kwh is not None:
        parts.append(f"cost: {number(tariff.cost(metering.duration_s, metering.energy_j, ''))}")
    if carbon is not None:
        parts.append(f"carbon: {si(tariff.carbon_g(metering.energy_j), 'g')} CO2")
    return "\n".join(parts)


def _share_text(name: str, share: GpuShare) -> str:
    """What a program and what others used of a GPU, in a line."""

    def use_text(busy: float | None, memory_bytes: int | None) -> str:
        time = "" if busy is None else f"computed {100 * busy:.0f} % of the time"
        memory = "" if memory_bytes is None else f"held {si(memory_bytes, 'B')}"
        return " and ".join(filter(None, [time, memory])) or "cannot be told apart"

    mine, others = use_text(share.busy, share.memory_bytes), use_text(share.others_busy, share.others_memory_bytes)
    return f"{name}: the program {mine}; other processes {others}"
