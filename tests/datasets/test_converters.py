"""Converters: small files in the form of the public repositories become the tables that importers read."""

from __future__ import annotations

import bz2
import subprocess

import pytest
from typer.testing import CliRunner

from joulecast.cli import application
from joulecast.datasets.converters import convert as module
from joulecast.datasets.converters.convert import CONVERTERS, convert
from joulecast.datasets.published import PUBLISHED
from joulecast.errors import DatasetError, UnknownNameError

parquet = pytest.importorskip("pyarrow.parquet")

# Medians of one run of phi-2 on an H100 in milliseconds, as vidur has them, and the same in microseconds.
MEDIANS = {"emb": "0.07", "attn_pre_proj": "0.20800000000000002", "mlp_up_proj": "0.2945", "add": "0.039", "norm": ""}
MICROSECONDS = {"add": 39.0, "attn_pre_proj": 208.0, "emb": 70.0, "mlp_up_proj": 294.5}
SIZES = {"n_head": 32, "n_kv_head": 32, "n_embd": 2560, "n_expanded_embd": 10240, "vocab_size": 51200}
RUN = {**SIZES, "use_gated_mlp": False, "num_tokens": 3936, "num_tensor_parallel_workers": 1}

# Half a column of a table of MIOpen: its form since version 2.20, that of before, three dimensions, and no solver.
KERNELS = """
1-1-1-3x3-2-3-3-128-0x0-1x1-1x1-0-NCHW-FP16-B=Slow:0.00512,0,miopenAlgo;ConvOclDirectFwd:0.00384,0,miopenAlgo
16-28-30-5x3-64-14-15-1-2x1-2x2-1x1-0-NCHW-FP32-F_g4=miopenAlgo:ConvAsm,0.02352,9,miopenAlgo,not used;
256-16-56-56-1x1x1-64-16-56-56-4-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F=ConvAsm:0.1,0,miopenAlgo
16-28-30-5x3-64-14-15-1-2x1-2x2-1x1-0-NCHW-FP32-W=
"""


@pytest.fixture
def vidur(tmp_path):
    folder = tmp_path / "clone" / "data/profiling/compute/h100/microsoft/phi-2"
    folder.mkdir(parents=True)
    row = {f"time_stats.{layer}.{each}": text for layer, text in MEDIANS.items() for each in ("min", "median")} | RUN
    (folder / "mlp.csv").write_text(f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")
    return tmp_path / "clone"


@pytest.fixture
def miopen(tmp_path):
    folder = tmp_path / "clone" / "src/kernels"
    folder.mkdir(parents=True)
    (folder / "gfx90a68.HIP.fdb.txt").write_text(KERNELS)
    (folder / "gfx90a6e.HIP.fdb.txt.bz2").write_bytes(bz2.compress(KERNELS.encode()))
    (folder / "gfx90878.HIP.fdb.txt").write_text(KERNELS)  # an MI100, which is not imported
    return tmp_path / "clone"


def test_layers_of_vidur(vidur, tmp_path):
    ((path, (count, _)),) = convert("vidur2024", vidur, tmp_path / "out", any_commit=True).items()
    rows = parquet.read_table(path).to_pylist()
    assert {row["layer"]: row["time_us"] for row in rows} == MICROSECONDS
    assert count == len(rows) == 4
    assert rows[0] == {
        "gpu": "H100", "model": "microsoft/phi-2", "layer": "add", "tokens": 3936, "tensor_parallel": 1,
        "hidden": 2560, "intermediate": 10240, "heads": 32, "kv_heads": 32, "vocabulary": 51200, "gated": False,
        "time_us": 39.0,
    }  # fmt: skip
    (dataset,) = PUBLISHED["vidur2024"].importer(tmp_path / "out")
    assert sorted(m.time_s for m in dataset.measurements) == pytest.approx([39e-6, 208e-6, 294.5e-6])


def test_convolutions_of_miopen(miopen, tmp_path):
    ((path, _),) = convert("miopen2024", miopen, tmp_path / "out", any_commit=True).items()
    small, grouped, *others = parquet.read_table(path).to_pylist()
    assert small == {
        "gpu": "AMD Instinct MI210", "layout": "NCHW", "precision": "fp16", "direction": "B", "c": 1, "h": 1, "w": 1,
        "r": 3, "s": 3, "k": 2, "out_h": 3, "out_w": 3, "n": 128, "pad_h": 0, "pad_w": 0, "stride_h": 1, "stride_w": 1,
        "dilation_h": 1, "dilation_w": 1, "bias": 0, "groups": 1, "time_us": pytest.approx(3.84, rel=1e-7),
        "solver": "ConvOclDirectFwd", "solvers": 2,
    }  # fmt: skip
    assert [grouped[name] for name in ("h", "w", "r", "s", "pad_h", "pad_w", "groups")] == [28, 30, 5, 3, 2, 1, 4]
    assert (grouped["solver"], grouped["time_us"]) == ("ConvAsm", pytest.approx(23.52))
    assert {row["gpu"] for row in others} == {"AMD Instinct MI250X GCD"}
    assert len(others) == 2
    PUBLISHED["miopen2024"].importer(tmp_path / "out")


def test_the_same_rows_have_the_same_digest(vidur, tmp_path):
    first, again = (convert("vidur2024", vidur, tmp_path / name, any_commit=True).values() for name in "ab")
    assert [*first] == [*again]


def test_another_commit_is_refused_unless_allowed(vidur, tmp_path, monkeypatch):
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "."]):
        named = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(vidur), *named, *words], check=True)  # noqa: S607
    with pytest.raises(DatasetError, match="7d47513"):
        convert("vidur2024", vidur, tmp_path / "out")
    head = subprocess.check_output(["git", "-C", str(vidur), "rev-parse", "HEAD"], text=True)  # noqa: S607
    monkeypatch.setattr(module, "CONVERTERS", {"vidur2024": (head[:7], CONVERTERS["vidur2024"][1])})
    assert convert("vidur2024", vidur, tmp_path / "out")


def test_what_is_no_clone_is_refused(vidur, tmp_path):
    with pytest.raises(UnknownNameError, match="vidur2024"):
        convert("vidur2042", vidur, tmp_path)
    with pytest.raises(DatasetError, match="no measurements of miopen2024"):
        convert("miopen2024", vidur, tmp_path, any_commit=True)
    path = next(vidur.rglob("mlp.csv"))
    path.write_text(path.read_text().replace("False", "perhaps"))
    with pytest.raises(DatasetError, match="another form"):
        convert("vidur2024", vidur, tmp_path, any_commit=True)


def test_the_command_prints_tables(vidur, tmp_path):
    words = ["datasets", "convert", "vidur2024", str(vidur), "--out", str(tmp_path / "out"), "--any-commit"]
    found = CliRunner().invoke(application(), words)
    assert found.exit_code == 0, found.output
    assert "4 rows" in found.output


def test_converters_make_the_tables_that_sources_list():
    for source, (commit, tables) in CONVERTERS.items():
        assert tuple(tables) == PUBLISHED[source].tables
        assert commit in PUBLISHED[source].address
