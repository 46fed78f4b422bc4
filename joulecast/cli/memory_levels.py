"""`joulecast memory-levels`: measures the energy of an access to each memory level of this machine's GPU."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError, unknown_name
from ..hardware.gpu import MEMORY_LEVELS
from ..units import si
from .printing import table


def memory_levels(
    device: Annotated[str, typer.Option(help="cuda, or cuda:1 for another GPU of this machine.")] = "cuda",
    gpu: Annotated[
        str | None, typer.Option(help="Name of the GPU in the catalogue. Default: the name that torch gives.")
    ] = None,
    runs: Annotated[int, typer.Option(min=3, help="Sweeps of each level.")] = 3,
    clock: Annotated[
        int | None, typer.Option(help="Graphics clock in MHz to lock meanwhile. Default: the GPU's own.")
    ] = None,
    access: Annotated[
        list[str] | None, typer.Option(help="load, store, load+divide or divide; repeat it. Default: load.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option(help="Also measure the energy of a load from this level over numbers of threads.")
    ] = None,
    sizes: Annotated[
        bool, typer.Option(help="Also find the sizes of L1 and L2, by chains through larger arrays.")
    ] = False,
    hits: Annotated[
        bool, typer.Option(help="Also count with ncu which level served the loads of each kernel.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw power over time, threads and sizes into an SVG file.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the GPU with its energies to this TOML file.")] = None,
) -> None:
    """Measure the energy of an access to shared memory, L1, L2 and DRAM. Takes about four minutes on an idle GPU."""
    import torch

    from ..hardware import find_gpu
    from ..hardware.gpu_toml import gpu_toml
    from ..predictors.physics.voltage import relative_voltage
    from ..profiling import chase_studies as studies
    from ..profiling.calibration import ACCESSES, calibrate
    from ..profiling.chase_kernels import CudaChase
    from ..profiling.devices import clocks_of, find_device, sensor_of

    board = find_device(device)
    if board.type != "cuda":
        raise InputError("only the memory levels of an NVIDIA GPU can be measured", given=device, allowed="cuda")
    if out is not None and out.exists():
        raise InputError(
            "this file exists already", given=str(out), allowed="a new file", hint="give --out another name"
        )
    accesses = tuple(access or ("load",))
    for given, known in ((accesses, ACCESSES), ((threads,) if threads else (), MEMORY_LEVELS)):
        for each in given:
            if each not in known:
                raise unknown_name("kind of access or memory level", each, known)
    described = find_gpu(torch.cuda.get_device_name(board) if gpu is None else gpu)
    clocks = None if clock is None else clocks_of(board)
    if clocks is not None and clock is not None:
        clocks.check(clock)
    with sensor_of(board) as sensor, nullcontext() if clocks is None else clocks.locked(clock):
        chase = CudaChase(board, described, sensor)
        calibration = calibrate(chase, runs, accesses=accesses)
        over = None if threads is None else studies.over_threads(chase, threads)
        caches = studies.sizes(chase, described) if sizes else ()
        drawing = None if picture is None else studies.drawn(chase, calibration, over, caches)
    rows = [
        [
            each.level,
            each.access,
            f"{1e12 * each.access_j:.4g} pJ",
            f"{100 * (each.spread - 1):.1f} %",
            f"{each.blocks} x {each.threads}",
            f"{si(each.accesses_per_s, '')}/s",
        ]
        for each in calibration.levels
    ]
    header = ["level", "access", "32 bytes", "spread of runs", "blocks x threads", "accesses"]
    typer.echo(table(header, rows, frozenset({2, 3, 4, 5})))
    typer.echo(f"without work: {', '.join(f'{watts:.1f}' for watts in calibration.idle_w)} W")
    for note in calibration.notes:
        typer.echo(f"note: {note}")
    if over is not None:
        rows = [[f"{n:,}", f"{1e12 * j:.4g} pJ"] for n, j in zip(over.threads, over.access_j, strict=True)]
        typer.echo(table(["threads", f"load from {over.level}"], rows, frozenset({0, 1})))
    for cache in caches:
        typer.echo(f"{cache.level}: {cache.size_bytes / 1024:,.0f} KiB, from the time of a step in larger arrays")
    for level in MEMORY_LEVELS if hits else ():
        shares = studies.hits(level)
        typer.echo(f"{level}: {', '.join(f'{100 * share:.0f} % from {each}' for each, share in shares.items())}")
    if drawing is not None and picture is not None:
        picture.write_text(drawing, encoding="utf-8")
    if out is not None:
        source = f"access_energy_j: joulecast memory-levels on this {torch.cuda.get_device_name(board)}"
        # The catalogue's energies hold at the boost clock; levels on the chip take the square of the voltage.
        logic = 1.0 if clock is None else float(relative_voltage(described, clock)[0]) ** -2
        joules = {
            level: each * (1 if level == "dram" else logic) for level, each in calibration.access_energy_j.items()
        }
        measured = replace(described, access_energy_j=joules, sources=(*described.sources, source))
        out.write_text(gpu_toml(measured), encoding="utf-8")
        typer.echo(f"wrote {out}; use it with --gpu {out}")
