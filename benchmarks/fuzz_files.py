"""Fuzzes every kind of file that joulecast reads: damages it in thousands of ways, and expects that it is refused.

    python benchmarks/fuzz_files.py                                    # 5,000 cases over all kinds
    python benchmarks/fuzz_files.py --count 50000 --seed 1 onnx pt2

Bytes are flipped, removed, repeated and inserted. Values of JSON, TOML, tables and the graphs of .pt2 files are
replaced by wrong values; in datasets and zoo entries, files are also missing, links, pipes, bombs or those of others,
and mostly the digests in their index are corrected. "configuration" names paths, see fuzz_configurations.py; requests
to the service have a script of their own (fuzz_service.py). There are two correct outcomes: the file is read, or a
JoulecastError is raised. Other exceptions, signals, more than 1 GB and more than 20 s are faults, and so is a folder
that reads otherwise though its index is that of what it was: whoever may write an index may write any predictor, but
its own digest is another, so places, the cache and the registry refuse it. Faults end the script with exit code 1.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import fuzz_configurations
import fuzz_sources
from fuzz_damage import INDEXES, damage, toml_text
from fuzz_judge import Judge, Tally, Verdict, fuzz, main

from joulecast.operations.operation import digest_of

ROOT = Path(__file__).resolve().parents[1]


# Functions that make the files to be damaged, each in its own folder.


def make_onnx(folder: Path) -> Path:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="/a/conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"], name="/a/relu"),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Range", ["zero", "four", "one"], ["range"]),
        helper.make_node("Gather", ["s", "range"], ["again"]),
        helper.make_node("Reshape", ["r", "again"], ["t"]),
        helper.make_node("double", ["t"], ["y"], domain="own"),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    double = helper.make_function("own", "double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets)
    weights = {"w": np.zeros((6, 4, 3, 3), np.float32), "b": np.zeros(6, np.float32)}
    weights |= {name: np.array(n, np.int64) for name, n in {"zero": 0, "one": 1, "four": 4}.items()}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[double]), path)
    return path


def make_pt2(folder: Path) -> Path:
    import warnings

    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    model.append(torch.nn.MaxPool2d(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model.eval(), (torch.zeros(2, 3, 8, 8),), strict=False)
        torch.export.save(program, folder / "m.pt2")
    return folder / "m.pt2"


def make_network(folder: Path) -> Path:
    import joulecast

    joulecast.extract("resnet18", (1, 3, 64, 64)).save(folder / "m.json")
    return folder / "m.json"


def make_config(folder: Path) -> Path:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 100, "hidden_act": "gelu", **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


def make_recipe(folder: Path) -> Path:
    shutil.copy(ROOT / "predictors" / "any-gpu.toml", folder / "recipe.toml")
    return folder / "recipe.toml"


def make_campaign(folder: Path) -> Path:
    shutil.copy(next(iter(sorted((ROOT / "profiling").glob("*.toml")))), folder / "campaign.toml")
    return folder / "campaign.toml"


def make_gpu(folder: Path) -> Path:
    rows = tomllib.loads((ROOT / "joulecast/hardware/gpus/ampere.toml").read_text())
    described = next(row for row in rows["gpu"] if "A30" in row["name"])
    (folder / "gpu.toml").write_text(toml_text({**described, "name": "Mine", "aliases": ["Mine"]}))
    return folder / "gpu.toml"


def make_journal(folder: Path) -> Path:
    from joulecast.profiling.journal import Journal

    power = {"power_w": 50.0, "power_std_w": 1.0, "naive_w": 50.0, "clock_mhz": 900, "temperature_c": 40}
    timing = {"time_s": 1e-4, "device_time_s": 1e-4, "iterations": 3, "start_s": 0.0, "end_s": 1.0}
    timing |= {"loops": [[1, 1e-4], [3, 3e-4]]}
    trace = {"time_s": [0.0, 0.1, 0.2], "power_w": [40.0, 50.0, 50.0], "energy_j": [0.0, 5.0, 10.0]}
    with Journal(folder / "journal.jsonl", {"name": "fuzz", "seed": 0, "device": "A30"}) as journal:
        for size in (2, 3):
            record = {"key": f"{size}/0", "clock_mhz": None, "status": "ok", "started": "2026-01-01", "trace": trace}
            record |= {"operation": {"kind": "relu", "input_shapes": [[size, size]]}}
            journal.append({**record, "timing": {**timing, "warnings": []}, "power": {**power, "warnings": []}})
    return folder / "journal.jsonl"


def make_dataset(folder: Path) -> Path:
    from joulecast import Network, Operation
    from joulecast.datasets import Card, Dataset, Measurement, NetworkMeasurement, save

    rows = [Measurement(Operation("relu", [(n, 8)]), 1e-4, 50.0, 5e-3, campaign="c", method="m") for n in range(1, 20)]
    listed = Network.of([(rows[0].operation, 3)])
    networks = [NetworkMeasurement("resnet18", (n, 3, 64, 64), "fp32", "inference", 1e-3, 50.0, 0.05) for n in (1, 2)]
    networks.append(NetworkMeasurement("mine", (1, 8), "fp32", "inference", 1e-3, 50.0, 0.05, operations=listed))
    card = Card("NVIDIA A30", None, "fuzz", "none", {"m": "made up"})
    return save(Dataset(card, tuple(rows), tuple(networks)), folder / "data")


def make_recording(folder: Path) -> Path:
    import numpy as np

    from joulecast.metering.recording import DeviceInfo, Writer, block_of
    from joulecast.metering.samples import Samples

    devices = [asdict(DeviceInfo("gpu0", "board", idle_w=30.0)), asdict(DeviceInfo("cpu0", "package"))]
    machine = {"host": "node1", "started": "2026-11-22T08:00:00+00:00", "start_s": 10.0, "wall_offset_s": 1.8e9}
    times_s = np.arange(10.0, 12.0, 0.1)
    with Writer(folder / "recording.jsonl", {**machine, "program": ["x"], "absent": [], "devices": devices}) as writer:
        writer.write(block_of("gpu0", Samples.of(times_s, power_w=np.full(20, 100.0))))
        writer.write(block_of("cpu0", Samples.of(times_s, energy_j=np.arange(20.0))))
        writer.write({"kind": "windows", "windows": [["epoch", 10.1, 11.2], ["epoch.step", 10.2, 10.9]]})
        writer.write({"kind": "event", "time_s": 10.25, "device": "gpu0", "what": "lost"})
        writer.write({"kind": "end", "time_s": 12.4, "exit_code": 3})
    return folder / "recording.jsonl"


def make_counters(folder: Path) -> Path:
    from joulecast.hardware.ncu import metrics

    lines = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    lines += [f'"{kernel}","k{kernel}","{name}","byte","1,024"' for kernel in (0, 1) for name in metrics()]
    (folder / "counters.csv").write_text("==PROF== Connected\n" + "\n".join(lines) + "\n")
    return folder / "counters.csv"


def make_entry(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(ROOT / "zoo" / name, folder / "entry"))


def make_host(folder: Path) -> Path:
    from joulecast.hardware.host import write_profile

    write_profile(folder / "host.json", 0.7, {"launch_s": 5e-6})
    return folder / "host.json"


# Functions that read them.


def read_model(path: Path) -> None:
    import joulecast

    shape = (1, 8) if path.name == "config.json" else None
    network = joulecast.extract(path, shape)
    joulecast.predict(network, None, "A30")


def read_recipe(path: Path) -> None:
    from joulecast.predictors.fitting.forms import load_recipe

    load_recipe(path)


def read_campaign(path: Path) -> None:
    from joulecast.profiling.campaign import load_campaign

    load_campaign(path)


def read_gpu(path: Path) -> None:
    import joulecast
    from joulecast import Operation

    joulecast.predict([(Operation("relu", [(32, 64)]), 1)], None, str(path))


def read_journal(path: Path) -> None:
    from joulecast.profiling.session import finish

    finish(path.parent)


def read_source(source: str, path: Path) -> None:
    from joulecast.datasets import PUBLISHED, save

    for dataset in PUBLISHED[source].importer(path):
        save(dataset, path.parent / "imported")


def read_dataset(path: Path) -> str:
    from joulecast.datasets import load

    dataset = load(path)
    return digest_of(repr((dataset.measurements, dataset.networks)))


def read_entry(path: Path) -> str:
    """The predictions of an entry, as a digest. A refused request, which any predictor may refuse, is an answer."""
    from joulecast import Network, Operation
    from joulecast.errors import JoulecastError
    from joulecast.hardware import find_gpu
    from joulecast.operations.operation_list import OperationList
    from joulecast.zoo.entry import Entry
    from joulecast.zoo.kinds import ANY_GPU, KERNELS_PREDICTOR

    entry = Entry.of(path)
    entry.check()
    products = [Operation("linear", [(m, 4096)], {"out_features": 4096}, precision="bf16") for m in (1, 64, 4096)]
    if entry.stored.predictor == KERNELS_PREDICTOR:
        return str(entry.predictor.device_s(OperationList.of(products), find_gpu("H100 SXM")).tolist())
    gpus, modes = (("A30", "H100 SXM"), ("inference", "training")) if entry.kind is ANY_GPU else (("",), ("",))
    said = []
    for predictor in [entry.on(gpu, mode) for gpu in gpus for mode in modes]:
        mode, image = predictor.operations.mode, [(32, 64, 28, 28)]
        kinds = {"relu": {}, "batch_norm": {}, "conv2d": {"out_channels": 64, "kernel_size": 3}}
        operations = [Operation(kind, image, attributes, mode=mode) for kind, attributes in kinds.items()]
        operations += [Operation("linear", [(n, 1024)], {"out_features": 1024}, mode=mode) for n in (1, 64, 4096)]
        try:
            predictions = predictor.operations.predict(operations)
            network = predictor.predict(Network.of([(operation, 3) for operation in operations]))
            said += [predictions.energy_j.tolist(), predictions.device_time_s.tolist()]
            said += [network.time_s, network.energy_j, network.interval(0.5)]
        except JoulecastError as error:
            said.append(f"{type(error).__name__}: {error.what}")
    return digest_of(repr(said))


def read_recording(path: Path) -> None:
    from joulecast.metering.recording import read_recording
    from joulecast.metering.result import Metering, merged

    merged("fuzz", [Metering(path.stem, (read_recording(path),))]).to_dict()


def read_counters(path: Path) -> None:
    from joulecast.hardware.ncu import read_counters

    str(read_counters(path))


def read_host(path: Path) -> None:
    from joulecast.hardware.host import find_host

    find_host(path)


ENTRIES = ("a30/forest-inference", "a30/xgboost-inference", "cpu-amd-epyc/forest-inference")
ENTRIES += ("any-gpu/forest", "any-gpu/kernels", "any-gpu/transformer")
"""Entries of the zoo, one of each form."""

KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], str | None]]] = {
    "onnx": (make_onnx, read_model),
    "pt2": (make_pt2, read_model),
    "network": (make_network, read_model),
    "config": (make_config, read_model),
    "recipe": (make_recipe, read_recipe),
    "campaign": (make_campaign, read_campaign),
    "gpu": (make_gpu, read_gpu),
    "journal": (make_journal, read_journal),
    "dataset": (make_dataset, read_dataset),
    "recording": (make_recording, read_recording),
    "counters": (make_counters, read_counters),
    "host": (make_host, read_host),
    "configuration": (make_config, fuzz_configurations.read),
    **{name: (partial(make_entry, name), read_entry) for name in ENTRIES},
    **{source: (make, partial(read_source, source)) for source, make in fuzz_sources.SOURCES.items()},
}
"""Kind of file -> function that makes a valid file, and function that reads it."""


Made = Mapping[str, Path]
"""Kind -> a valid file of this kind, each in its own folder."""


def read(case: tuple[str, Path]) -> str | None:
    """Read a file of a kind in the way of the command line."""
    kind, path = case
    return KINDS[kind][1](path)


def made(kinds: Iterable[str], folder: Path) -> Made:
    """Make a valid file of each kind, each in a folder below this one."""
    paths = {}
    for kind in kinds:
        mine = folder / kind
        mine.mkdir(parents=True)
        paths[kind] = KINDS[kind][0](mine)
    return paths


def index_of(path: Path) -> bytes | None:
    """The index of a folder, with the digests of its files; None for a file."""
    index = next((path / name for name in INDEXES if (path / name).is_file()), None)
    return None if index is None or index.is_symlink() else index.read_bytes()


def fuzz_files(shares: Mapping[str, int], seed: int, judge: Callable[[tuple[str, Path]], Verdict]) -> Tally:
    """Damage and read as many files of each kind as its share says; what is good must be read first.

    Raises:
        RuntimeError: A file that nobody damaged is refused.
    """
    with tempfile.TemporaryDirectory() as scratch:
        good, said = made(shares, Path(scratch) / "good"), {}
        for kind in shares:
            copy = Path(shutil.copytree(good[kind].parent, Path(scratch) / "whole" / kind)) / good[kind].name
            verdict = judge((kind, copy))
            if verdict.outcome != "read":
                raise RuntimeError(f"a good file of the kind {kind} is not read: {verdict}")
            said[kind] = verdict.said

        def judged(kind: str, rng: random.Random) -> Verdict:
            folder = Path(scratch) / "case"
            shutil.copytree(good[kind].parent, folder)
            path = folder / good[kind].relative_to(good[kind].parent)
            (fuzz_configurations.damage if kind == "configuration" else damage)(path, rng)
            index = index_of(path)
            verdict = judge((kind, path))
            shutil.rmtree(folder)
            same_index = index is not None and index == index_of(good[kind])
            if same_index and verdict.outcome == "read" and verdict.said != said[kind]:
                return Verdict("unnoticed", verdict.said)
            return verdict

        return fuzz(shares, seed, judged)


def run(names: Sequence[str], count: int, seed: int) -> Tally:
    """Fuzz files of these kinds, or of all."""
    kinds, judge = names or list(KINDS), Judge(read)
    try:
        return fuzz_files(dict.fromkeys(kinds, -(-count // len(kinds))), seed, judge)
    finally:
        judge.stop()


if __name__ == "__main__":
    main(__doc__ or "", run, what=f"of {', '.join(KINDS)}; all if left out", count=5000)
