"""`joulecast measure`: measure the energy of a program, and work with recordings of such measurements."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, JoulecastError, unknown_name
from ..units import number, si
from .printing import Shown, table

if TYPE_CHECKING:
    from ..metering.result import Metering

_SIGNIFICANT = 0.05  # Below this p-value, two programs are said to differ.


def _configured(context: typer.Context, path: Path | None) -> Path | None:
    """Take the defaults of options from a TOML file, whose keys are the names of options without dashes."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            "the configuration cannot be read",
            given=f"{path}: {error}",
            allowed="a TOML file such as: interval = 0.2",
            hint="check its path and its syntax",
        ) from error
    known = [str(each.name) for each in context.command.params if each.name not in ("command", "config")]
    for name in values:
        if name not in known:
            raise unknown_name("option", name, known)
    context.default_map = values
    return path


def run(
    command: list[str],
    devices: str | None = None,
    interval: float = 0.1,
    out: Path | None = None,
    price_per_kwh: float | None = None,
    carbon: str | None = None,
    plot: Path | None = None,
    repeat: int = 1,
    csv: Path | None = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with values for these options.", callback=_configured, is_eager=True)
    ] = None,
    as_json: bool = False,
) -> None:
    """Run a command and measure its energy.

    The results are printed to the standard error. The exit code is that of the command; 1 if it succeeds but the
    recording cannot be written completely. With --repeat, the first run that fails is the last one, and --out FILE
    writes FILE-1, FILE-2 and so on.
    """
    from ..metering.command import mean_and_deviation, measure_command, quantities, runs_csv
    from ..metering.machine import chosen_devices
    from ..metering.meter import Meter

    chosen, code, runs = chosen_devices(devices), 0, []
    for place in range(1, repeat + 1):
        path = out if out is None or repeat == 1 else out.with_stem(f"{out.stem}-{place}")
        meter = Meter(chosen, interval_s=interval, out=path, title=Path(command[0]).name, command=command)
        code, metering = measure_command(command, meter)
        if metering is None:
            continue
        runs.append(metering)
        text = json.dumps(metering.to_dict()) if as_json else _text(metering, price_per_kwh, carbon)
        typer.echo(text, err=True)
        if plot is not None:
            metering.plot(plot)
        if not code and not all(recording.complete for recording in metering.recordings):
            raise JoulecastError(
                "the recording is not complete",
                given=str(path or "a temporary file"),
                hint="make room on its disk, and measure again",
            )
        if code:
            break
    if csv is not None:
        csv.write_text(runs_csv(runs), "utf-8")
    if len(runs) > 1 and not as_json:
        rows = []
        for name, values in quantities(runs).items():
            mean, deviation = mean_and_deviation(values)
            share = "-" if deviation is None or not mean else f"{100 * deviation / mean:.1f} %"
            rows.append([name, f"{mean:.4g}", "-" if deviation is None else f"{deviation:.2g}", share])
        header = [f"{len(runs)} runs", "mean", "standard deviation", "of the mean"]
        typer.echo(f"\n{table(header, rows, frozenset({1, 2, 3}))}", err=True)
    raise typer.Exit(code)


def listen(port: int = 9401, devices: str | None = None, interval: float = 0.1, out: Path | None = None) -> None:
    """Measure until a program in any language sends "end", with windows between its commands "start NAME" and "stop".

    Commands are lines that are sent to the port, such as by `echo start epoch | nc localhost 9401`.
    """
    from ..metering.command import Listener
    from ..metering.machine import chosen_devices
    from ..metering.meter import Meter

    with Meter(chosen_devices(devices), interval_s=interval, out=out, own_share=False) as meter:
        listener = Listener(meter, port)
        typer.echo(f"listening on port {listener.port}: start NAME, stop, end", err=True)
        with contextlib.suppress(KeyboardInterrupt):
            listener.serve()
    typer.echo(_text(meter.result(), None, None))


def show(
    shown: Shown,
    recordings: list[Path],
    price_per_kwh: float | None = None,
    carbon: str | None = None,
    csv: bool = False,
) -> None:
    """Show the energy and time of recordings."""
    if csv:
        from ..metering.command import runs_csv

        typer.echo(runs_csv([_read([path]) for path in recordings]), nl=False)
        return
    metering = _read(recordings)
    shown.tell(metering, lambda: _text(metering, price_per_kwh, carbon))


def compare(first: Path, second: Path) -> None:
    """Compare two recordings, device by device and window by window; or repeats of two programs.

    Of repeats, means are compared, with the probability that equal programs differ as much (a permutation test).
    """
    if len(mine := _matching(first)) > 1 or len(_matching(second)) > 1:
        typer.echo(_significance_text(mine, _matching(second)))
        return
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


def _matching(pattern: Path) -> list[Path]:
    """The files that a pattern means, or the path itself."""
    return [pattern] if pattern.exists() else sorted(pattern.parent.glob(pattern.name)) or [pattern]


def _significance_text(first: list[Path], second: list[Path]) -> str:
    """Means of the repeats of two programs, their ratio, and whether they differ by more than chance."""
    from ..metering.command import least_p_value, mean_and_deviation, p_value, quantities

    one, other = (quantities([_read([path]) for path in paths]) for paths in (first, second))
    rows = []
    for name in (name for name in one if name in other):
        (mean, deviation), (again, its_own) = mean_and_deviation(one[name]), mean_and_deviation(other[name])
        p = p_value(one[name], other[name])
        ratio = f"{again / mean:.3f}" if mean else "-"
        cells = [f"{value:.4g} +- {error or 0:.2g}" for value, error in ((mean, deviation), (again, its_own))]
        rows.append([name, *cells, ratio, f"{p:.2g}", "yes" if p < _SIGNIFICANT else "no"])
    header = ["", f"first ({len(first)})", f"second ({len(second)})", "second / first", "p", "differ"]
    least = least_p_value(len(first), len(second))
    few = "" if least < _SIGNIFICANT else f"\nnote: so few runs cannot differ with p below {least:.2g}; take 5 of each"
    return table(header, rows, frozenset({1, 2, 3, 4})) + few


def merge(shown: Shown, recordings: list[Path]) -> None:
    """Combine recordings of several machines: energies are added, and the longest time counts."""
    metering = _read(recordings)
    shown.tell(metering, lambda: _text(metering, None, None))


def _read(paths: list[Path]) -> Metering:
    from ..metering.recording import read_recording
    from ..metering.result import Metering, merged

    title = paths[0].stem if len(paths) == 1 else f"{len(paths)} recordings"
    return merged(title, [Metering(path.stem, (read_recording(path),)) for path in paths])


def _text(metering: Metering, price_per_kwh: float | None, carbon: str | None) -> str:
    from ..queries.objectives import Tariff

    tariff = Tariff.of(None, price_per_kwh, carbon)
    rows = [
        [
            found.name if len(metering.recordings) > 1 else found.device.name,
            found.device.component + ("" if found.device.counted else " (part of another)"),
            f"{'' if found.complete else '> '}{si(found.energy_j, 'J')}",
            si(found.mean_w, "W"),
            si(found.peak_w, "W"),
            si(found.energy_j - found.idle_j, "J") if found.idle_j is not None else "-",
            si(found.program_j, "J"),
            found.device.method,
        ]
        for found in metering.devices
    ]
    parts = [str(metering)]
    if rows:
        header = ["device", "component", "energy", "mean", "peak", "above idle", "program's", "source"]
        parts += ["", table(header, rows, frozenset({2, 3, 4, 5, 6}))]
    if (used := metering.cpu_share) is not None:
        parts += ["", f"the program used {100 * used:.0f} % of the CPU time that was used on this machine"]
    for name, share in metering.gpu_shares.items():
        mine, others = _used(share.busy, share.memory_bytes), _used(share.others_busy, share.others_memory_bytes)
        parts.append(f"{name}: the program {mine}; other processes {others}")
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


def _used(busy: float | None, memory_bytes: int | None) -> str:
    """What was used of a GPU, in words."""
    time = "" if busy is None else f"computed {100 * busy:.0f} % of the time"
    memory = "" if memory_bytes is None else f"held {si(memory_bytes, 'B')}"
    return " and ".join(filter(None, [time, memory])) or "cannot be told apart"
