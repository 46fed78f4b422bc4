"""Converters: small files in the form of the public repositories become the tables that importers read."""

import bz2
import csv
import subprocess

import pytest

from conftest import benchmark
from joulecast.datasets import PUBLISHED
from joulecast.errors import DatasetError, UnknownNameError

parquet = pytest.importorskip("pyarrow.parquet")
with benchmark("convert") as module:
    CONVERTERS, convert, nicolai2025 = module.CONVERTERS, module.convert, module.nicolai2025

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
    # Two products of 3936 tokens are so large that the power cap slowed them down.
    assert [m.time_s for m in dataset.measurements] == pytest.approx([39e-6])


def test_layers_of_llmservingsim(tmp_path):
    folder = tmp_path / "clone/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1"
    folder.mkdir(parents=True)
    (folder / "attention.csv").write_text("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n16,64,0,0,9.78067\n")
    (folder / "dense.csv").write_text("layer,tokens,time_us\nact_fn,1,2.592\nqkv_proj,1,54.898\n")
    ((path, (count, _)),) = convert("llmservingsim2026", tmp_path / "clone", tmp_path / "out").items()
    attention, _, product = parquet.read_table(path).to_pylist()
    assert count == 3
    assert (attention["kv_prefill"], attention["tokens"], product["tokens"]) == (64.0, None, 1.0)
    (dataset,) = PUBLISHED["llmservingsim2026"].importer(tmp_path / "out")
    assert [m.operation.input_shapes[-1] for m in dataset.measurements] == [(1, 8, 80, 128), (1, 4096)]
    (folder / "dense.csv").write_text("layer,tokens,time_us\nqkv_proj,one,54.898\n")
    with pytest.raises(DatasetError, match="another form"):
        convert("llmservingsim2026", tmp_path / "clone", tmp_path / "out")


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


def test_another_commit_is_refused_unless_allowed(vidur, tmp_path, monkeypatch):
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "."]):
        git(vidur, "-c", "user.name=a", "-c", "user.email=a@b", *words)
    with pytest.raises(DatasetError, match="7d47513"):
        convert("vidur2024", vidur, tmp_path / "out")
    head = git(vidur, "rev-parse", "HEAD")
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


def test_converters_make_the_tables_that_sources_list():
    for source, (commit, tables) in CONVERTERS.items():
        assert tuple(tables) == PUBLISHED[source].tables
        assert (commit or "https://github.com") in PUBLISHED[source].address


# A campaign of forwards, one of forwards and trainings, and one of networks, in the form of the logs.
MOMENTS = "2024-11-16_18-25-48 2024-11-16_18-26-11"
FORWARDS = f"""FutureWarning: You are using `torch.load` with `weights_only=False`
ReLU(inplace=True)
ReLU(inplace=True) (32, 64, 9) 2e-05 3.21 0.1 0.25 5000 10.5 160.5 1.5 670.1 2.7 3e-05 {MOMENTS} 9e-09
ReLU(inplace=True) (32, 64, 9) 2e-05 3.21 0.1 0.25 5000 10.5 160.5 1.5 670.1 2.7 3e-05 {MOMENTS.replace("-16_", "-10_")}
"""
TRAINING = "7e-07 4e-05 3e-06 3.6 1.5 17.5 90.0 5.5 264.0 14.6"
BOTH_TIMES = f"{MOMENTS} {TRAINING}"
BOTH = f"""Linear(in_features=8, out_features=4, bias=True)
Linear(in_features=8, out_features=4, bias=True) (32, 8) 1e-05 1.2 0.1 0.5 900 9.5 120.0 2.5 1 2 3e-05 {BOTH_TIMES}
"""
NETWORKS = f"""resnet18 (32, 3, 56, 56)
warmup complete resnet18 (32, 3, 56, 56)
ResNet (32, 3, 56, 56) 0.012 1152.0 0.38 36.0 2512 32.5 96.0 2.25 19.6 0.57 0.0128 {MOMENTS} 0.0002
inception_v3 (32, 3, 299, 299)
skipping inception
"""


def git(clone, *arguments, **options):
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def test_logs_of_nicolai(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    with pytest.raises(DatasetError, match="lacks a log of a campaign"):
        convert("nicolai2025", tmp_path, tmp_path / "out")
    logs = {
        "finalbench_all_operations_A30": FORWARDS,
        "operations_RTX2080TI_train": BOTH,
        "A30_no_tc_fullmodel_train": NETWORKS,
    }
    blobs = {log: git(tmp_path, "hash-object", "-w", "--stdin", input=text)[:10] for log, text in logs.items()}
    for table in ("_OPERATIONS", "_NETWORKS"):
        known = {log: (blobs[log],) for log in getattr(nicolai2025, table) if log in blobs}
        monkeypatch.setattr(nicolai2025, table, known)
    found = convert("nicolai2025", tmp_path, tmp_path / "out")
    assert [rows for rows, _ in found.values()] == [4, 1]
    first, second, forward, training = csv.DictReader((tmp_path / "out/operations.csv").read_text().splitlines())
    assert (first["started"], first["time_std_s"], second["time_std_s"]) == ("2024-11-10_18-25-48", "", "9e-09")
    assert first["source_blob"] == blobs["finalbench_all_operations_A30"]
    expected = {
        "gpu": "NVIDIA A30", "tf32": "True", "mode": "inference", "module": "ReLU(inplace=True)",
        "input_shape": "(32, 64, 9)", "energy_j": "0.00321", "iterations": "5000.0", "measured_for_s": "10.5",
    }  # fmt: skip
    assert {name: second[name] for name in expected} == expected
    assert (forward["mode"], forward["time_s"], forward["time_std_s"]) == ("inference", "1e-05", "7e-07")
    expected = {"time_s": "4e-05", "power_w": "90.0", "energy_j": "0.0036", "energy_std_j": "0.0015", "iterations": ""}
    assert {name: training[name] for name in expected} == expected
    (network,) = csv.DictReader((tmp_path / "out/networks.csv").read_text().splitlines())
    expected = {"network": "resnet18", "mode": "training", "tf32": "False", "time_s": "0.012", "energy_j": "1.152"}
    assert {name: network[name] for name in expected} == expected
    datasets = PUBLISHED["nicolai2025"].importer(tmp_path / "out")
    assert sorted(len(dataset.measurements) for dataset in datasets) == [2, 2]


COMMON = {"framework": "SGLang", "version": "0.5.14", "device": "NVIDIA H200", "kernel_source": "fa3", "latency": "0.5"}
FILES = {
    "gemm": {"gemm_dtype": "bfloat16", "m": "8", "n": "256", "k": "128", "power": "600.5", "power_limit": "700"},
    "generation_attention": {
        "attn_dtype": "bfloat16", "kv_cache_dtype": "fp8", "batch_size": "4", "isl": "1", "num_heads": "32",
        "num_key_value_heads": "8", "head_dim": "128", "step": "255",
    },
    "moe": {
        "moe_dtype": "fp8_block", "num_tokens": "16", "hidden_size": "2048", "inter_size": "768", "topk": "8",
        "num_experts": "128", "moe_tp_size": "1", "moe_ep_size": "4", "distribution": "balanced",
    },
    "custom_allreduce": {"allreduce_dtype": "bfloat16", "num_gpus": "8", "message_size": "4096"},
}  # fmt: skip


def test_kernels_of_aiconfigurator(tmp_path):
    folder = tmp_path / "clone/src/systems/data/h200_sxm/sglang/0.5.14"
    folder.mkdir(parents=True)
    for name, columns in FILES.items():
        rows = [{**COMMON, **columns}, {**COMMON, **columns, "device": "Intel B60"}]
        lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
        (folder / f"{name}_perf.txt").write_text("\n".join(lines) + "\n")
    found = convert("aiconfigurator2026", tmp_path / "clone", tmp_path / "out", any_commit=True)
    tables = {path.stem: parquet.read_table(path).to_pylist() for path in found}
    ((linear,), (attention,), (experts,), (reduced,)) = tables.values()
    assert linear == {
        "gpu": "NVIDIA H200", "stack": "sglang 0.5.14", "kernel": "fa3", "precision": "bfloat16", "m": 8, "n": 256,
        "k": 128, "time_us": 500.0, "power_w": 600.5, "power_limit_w": 700.0,
    }  # fmt: skip
    expected = {"phase": "generation", "cache_precision": "fp8", "tokens": 1, "cached": 255, "kv_heads": 8, "window": 0}
    assert {name: attention[name] for name in expected} == expected
    assert attention["power_w"] is None
    assert (experts["experts"], experts["expert_parallel"], experts["distribution"]) == (128, 4, "balanced")
    assert (reduced["collective"], reduced["gpus"], reduced["message_size"]) == ("all_reduce", 8, 4096)
    (folder / "gemm_perf.txt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(DatasetError, match="pointer of Git LFS"):
        convert("aiconfigurator2026", tmp_path / "clone", tmp_path / "out", any_commit=True)
