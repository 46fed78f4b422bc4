"""Datasets at rest: round trip, checks on load, impossible measurements."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import full_disk
from joulecast import Network, Operation
from joulecast.datasets import Dataset, Measurement, NetworkMeasurement, fingerprint, load, save
from joulecast.errors import DatasetError

RELU = Operation("relu", [(4, 8)])


def test_a_dataset_comes_back_and_its_fingerprint_follows_the_content(dataset, tmp_path):
    assert load(save(dataset, tmp_path / "a")) == dataset
    first = fingerprint(tmp_path / "a")
    assert fingerprint(save(dataset, tmp_path / "b")) == first
    shorter = replace(dataset, measurements=dataset.measurements[1:])
    assert fingerprint(save(shorter, tmp_path / "c")) != first


def rewrite_card(folder, **changes):
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, **changes}))


def change_byte(folder):
    data = bytearray((folder / "operations.parquet").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "operations.parquet").write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (change_byte, "differs from its card"),
        (lambda folder: (folder / "card.json").unlink(), "holds no complete dataset"),
        (lambda folder: (folder / "operations.parquet").unlink(), "a file of the dataset is missing"),
        (lambda folder: (folder / "networks.parquet").unlink(), "a file of the dataset is missing"),
        (lambda folder: rewrite_card(folder, schema_version=99), "schema version"),
        (lambda folder: rewrite_card(folder, colour="green"), "is damaged(?s:.*)unexpected keyword argument 'colour'"),
    ],
)
def test_damaged_and_missing_files_and_cards_of_other_versions_are_refused(dataset, tmp_path, damage, says):
    damage(folder := save(dataset, tmp_path / "d"))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DatasetError, match=says):
        load(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def rewrite_table(folder, name, change):
    """Change a file, and its sha256 in the card, as another version of joulecast could have written them."""
    table = change(pq.read_table(folder / name))
    pq.write_table(table, folder / name)
    sha256 = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    files = json.loads((folder / "card.json").read_text())["files"]
    rewrite_card(folder, files={**files, name: {"sha256": sha256, "rows": table.num_rows}})


def test_an_unknown_operation_is_refused_with_its_row_and_a_file_with_other_columns(dataset, tmp_path):
    folder = save(dataset, tmp_path / "d")

    def unknown(table):
        values = table["operation"].to_pylist()
        values[2] = values[2].replace('"kind": "', '"kind": "un')
        return table.set_column(0, table.schema.field(0), pa.array(values))

    rewrite_table(folder, "operations.parquet", unknown)
    with pytest.raises(DatasetError, match="row 3: unknown operation kind"):
        load(folder)
    rewrite_table(folder, "networks.parquet", lambda table: table.drop_columns(["usable"]))
    with pytest.raises(DatasetError, match="does not have the schema"):
        load(folder)


def test_a_list_that_fills_the_memory_is_refused(dataset, tmp_path):
    """Twenty million equal sizes take some bytes in Parquet, and 160 MB in memory."""
    pytest.importorskip("resource")
    network = NetworkMeasurement("mine", (1,) * 20_000_000, "fp32", "inference", 1.0, 100.0, 100.0)
    folder = save(replace(dataset, networks=(network,)), tmp_path / "d")
    assert (folder / "networks.parquet").stat().st_size < 100_000
    # In another process, because this one may have so much memory to spare by now.
    code = "import sys; from joulecast.datasets import load, store; store._MOST_BYTES = 64 << 20; "
    ended = subprocess.run([sys.executable, "-c", f"{code} load(sys.argv[1])", folder], capture_output=True, text=True)
    assert "DatasetError: a file of measurements holds more than any does" in ended.stderr


def test_a_value_that_no_column_takes_and_a_full_disk_leave_no_file(dataset, tmp_path):
    wrong = replace(dataset.measurements[0], iterations=10**30)
    with pytest.raises(DatasetError, match="cannot be written"):
        save(Dataset(dataset.card, (wrong,)), tmp_path / "d")
    with full_disk(), pytest.raises(DatasetError, match="cannot be written"):
        save(dataset, tmp_path / "d")
    assert list((tmp_path / "d").iterdir()) == []


@pytest.mark.parametrize(
    ("time_s", "power_w", "energy_j", "says"),
    [
        (0.0, 100.0, 0.0, "not positive"),
        (float("nan"), 100.0, 1.0, "not positive"),
        (1.0, 199.0, 199.0, "1.2 x"),
        (1.0, 0.0, 0.0, "outside"),
        (1.0, 100.0, 102.0, "not power x time"),
        (1.0, 100.0, float("inf"), "not power x time"),
        (1.0, 100.0, None, "together"),
    ],
)
def test_impossible_measurements_are_refused_with_their_line(dataset, time_s, power_w, energy_j, says):
    good = [Measurement(RELU, 1.0, 100.0, 100.5, line=6), Measurement(RELU, 1.0, None, None)]
    with pytest.raises(DatasetError, match=says) as caught:
        Dataset(dataset.card, (*good, Measurement(RELU, time_s, power_w, energy_j, line=7)))
    assert "line 7" in str(caught.value)
    assert "line 6" not in str(caught.value)
    # A CPU draws what it draws where its cap is not known.
    measured = Measurement(RELU, 0.5, 280.0, 140.0)
    on_cpu = replace(dataset.card, gpu="CPU AMD EPYC 7742 64-Core Processor", power_limit_w=None)
    assert Dataset(on_cpu, (measured,)).usable("inference") == [measured]
    with pytest.raises(DatasetError, match="280"):
        Dataset(replace(on_cpu, power_limit_w=225.0), (measured,))


def test_a_dataset_of_networks_alone_survives(dataset, tmp_path):
    network = Network.of([(RELU, 3), (Operation("softmax", [(4, 8)]), 1)], name="mine")
    measured = (
        replace(dataset.networks[0], clock_mhz=900.0, operations=network),
        replace(dataset.networks[1], usable=False, remark="the host changed"),
    )
    alone = Dataset(dataset.card, (), measured)
    read = load(save(alone, tmp_path / "d"))
    assert read == alone
    assert read.networks[0].operations == network
    assert read.usable_networks("inference") == [measured[0]]
    assert read.usable_networks("training") == read.usable("inference") == []
