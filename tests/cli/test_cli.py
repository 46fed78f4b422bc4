"""The command line as a user meets it: output, exit codes, and one message per mistake."""

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_measurements import simulated_dataset, simulated_gpu

import joulecast
from joulecast.cli import machine
from joulecast.cli.options import in_option_words
from joulecast.datasets import save
from joulecast.hardware import gpus

PREDICT = ("predict", "resnet18", "32,3,224,224", "--gpu", "A30")
NETWORK = ("resnet18", "1,3,32,32")
SERVED = ("generate", "llama3_8b", "--gpu", "H100 SXM")


def test_predict_prints_totals_intervals_and_the_largest_operations(printed):
    out = printed(*PREDICT, "--top", 3)
    assert "resnet18 32 x 3 x 224 x 224, inference, on NVIDIA A30 at 1440 MHz" in out
    assert "90 % interval" in out
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("operation ")) + 2
    assert "more operations" in lines[first + 3]


@pytest.mark.parametrize("mode", [("--training",), ("--mode", "training")], ids=" ".join)
def test_options_are_asked_of_the_library(printed, mode):
    more = {"precision": "fp32", "optimizer": "adamw", "clock": 900}
    out = printed(*PREDICT, "--json", *mode, *(word for name in more for word in (f"--{name}", more[name])))
    assert json.loads(out) == joulecast.predict("resnet18", (32, 3, 224, 224), "A30", mode="training", **more).to_dict()


def test_extracted_json_can_be_predicted(printed, tmp_path):
    out = printed("extract", "resnet18", "32,3,224,224", "--json")
    (tmp_path / "net.json").write_text(out)
    again = printed("predict", tmp_path / "net.json", "--gpu", "A30", "--json")
    direct = json.loads(printed(*PREDICT, "--json"))
    assert json.loads(again)["energy_j"] == direct["energy_j"]
    rows = csv.DictReader(io.StringIO(printed(*PREDICT, "--csv")))
    assert sum(float(row["energy_j"]) for row in rows) == pytest.approx(direct["energy_j"])


def test_uncovered_operations_are_printed_and_refused_if_strict(call, printed, tmp_path):
    dropped = [{"name": "mine.op", "count": 1, "module_paths": ["a"], "reason": "no kind of operation"}]
    relu = {"kind": "relu", "input_shapes": [[32, 64, 56, 56]], "count": 2}
    (tmp_path / "odd.json").write_text(json.dumps({"name": "odd", "operations": [relu], "dropped": dropped}))
    asked = ("predict", tmp_path / "odd.json", "--gpu", "A30")
    out = printed(*asked)
    assert "INCOMPLETE" in out
    assert "not covered, and not in the totals" in out
    code, _, err = call(*asked, "--strict")
    assert (code, "not covered" in err) == (6, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("predict", "resnet5O", "1,3,224,224", "--gpu", "A30"), 2, "did you mean resnet50"),
        (("predict", "resnet50", "1,3,224,224"), 2, "needs a GPU"),
        (("predict", "resnet50", "1,3,224,224", "--gpu", "Xeon"), 5, "`joulecast collect` measures a device"),
        (("best", "resnet50", "1,3,224,224", "--gpu", "cpu"), 2, "only GPUs can be used here"),
        (("predict", "resnet50", "1,1,224,224", "--gpu", "A30"), 3, "conv1"),
        (("predict", "bert_base", "8,128,3", "--gpu", "A30"), 3, "allowed: batch x tokens"),
        (("predict", "resnet50", "a,b", "--gpu", "A30"), 2, "32,3,224,224"),
        (("serve", "--port", "99999"), 2, "no such port"),
        (("predict", "resnet50", "1,3,224,224", "--gpu", "A30", "--json", "--csv"), 2, "either"),
        (("predict", "nothere.json", "--gpu", "A30"), 2, "cannot be read"),
        (("predict", __file__, "--gpu", "A30"), 2, "a file may have several models: name one"),
        (("predict", "resnet50", "1,3,224,224", "--gpuu", "A30"), 2, "No such option"),
        (("datasets", "import", "nicolai2052", "."), 2, "did you mean nicolai2025"),
        (("datasets", "import", "nicolai2025", "nothere"), 4, "cannot be read"),
        (("datasets", "show", "nothere"), 4, "no complete dataset"),
        (("train", "--dataset", "nothere", "--recipe", "nothere.toml"), 2, "recipe cannot be read"),
        (("zoo", "push", "a30/forest-inference", "models:/mine"), 2, "named after its GPU and mode"),
        (("gpus", "ampere", "nothing"), 2, "given:   ampere nothing"),
        (("gpus", "show"), 2, "needs the name of a GPU"),
        (("models", "--search", "nothing"), 2, "unknown model"),
        (("best-generation", *SERVED[1:], "--counts", "1,x"), 2, "numbers of GPUs are positive integers"),
        (("best", *NETWORK, "--objective", "cost"), 2, "allowed: --price-per-hour"),
        (("best", *NETWORK, "--max-time", "-2"), 2, "--max-time is out of range"),
        (("predict", "resnet18", "--gpu", "A30"), 2, "give a shape such as 32,3,224,224"),
        (("predict", "Qwen/Qwen3-32B", "--gpu", "A30"), 2, "allowed: batch x tokens"),
        (("predict", "wide_resnet50_3", "--gpu", "A30"), 2, "a SHAPE such as 32,3,224,224"),
        (("predict", "stable-diffusion-xl-base-1.0", "1,3", "--gpu", "A30"), 2, "joulecast image sdxl"),
        (("generate", "flux_1_dev", "--gpu", "A30"), 2, "joulecast image flux_1_dev"),
        (("generate", "bert_base", "--gpu", "A30"), 2, "`joulecast predict` predicts"),
        (("image", "llama3_8b", "--gpu", "A30"), 2, "`joulecast predict llama3_8b`"),
        (("predict", *NETWORK, "--gpu", "A30", "--training", "--mode", "inference"), 2, "two modes"),
        (("account", "resnet18"), 2, "needs the shape"),
        (("predict", "nothere.py:Net", "1,3", "--gpu", "A30"), 2, "no such Python file"),
        (("predict", "nothere.pth", "1,3", "--gpu", "A30"), 2, "unknown model"),
        (("predict", *NETWORK), 2, 'such as --gpu="A30"'),
        (("predict", *NETWORK, "--gpu", "A30", "--predictor", "forst"), 2, "given:   'forst'"),
        (("predict", *NETWORK, "--gpu", "T4", "--precision", "bf16"), 2, "allowed: fp32, fp16\nnext:"),
        (("predict", *NETWORK, "--gpu", "A30", "--optimizer", "adamw"), 2, '--mode="training"'),
        (("best", *NETWORK, "--objective", "carbon"), 2, '--carbon="DE"'),
        (("measure", "python", "train.py"), 2, "next:    joulecast measure -- python train.py"),
        (("measure", "shwo", "run.jsonl"), 2, "Did you mean 'show'"),
        (("account", *NETWORK, "--static-power", "20"), 2, "add --gpu"),
        (("account", *NETWORK, "--device", "cuda:99"), 2, "cuda:99"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else None,
)
def test_mistakes_get_one_message_and_an_exit_code(call, arguments, code, says):
    got, out, err = call(*arguments)
    assert got == code
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_catalogue(printed):
    out = printed("gpus")
    assert "A30" in out
    assert all(gpu.aliases[0] in out for gpu in gpus().values())
    assert all(len(line) <= 100 for line in out.splitlines())
    assert [line.split()[0] for line in printed("gpus", "Hopper", "sxm").splitlines()[2:4]] == ["H100", "H200"]
    shown = printed("gpus", "show", "A30")
    assert "a30/forest-training" in shown
    assert "NVIDIA A30 Tensor Core GPU datasheet" in shown
    assert re.search(r"boost_clock_mhz +1440", shown)
    assert "a30/forest-inference" in printed("zoo", "list")
    assert "Limits" in printed("zoo", "show", "a30/forest-inference")
    assert printed("--version").startswith("joulecast ")


def test_models_are_listed_and_searched(printed):
    out = printed("models", "--search", "Qwen/Qwen3-8B")
    assert out.splitlines()[2].split() == ["qwen3_8b", "predict,", "generate", "Qwen/Qwen3-8B"]
    assert {"resnet50", "bert_base", "flux_1_dev"} <= {line.split()[0] for line in printed("models").splitlines()}
    assert "sdxl  image" in printed("models", "--search", "stable-diffusion-xl")


def test_a_gpu_described_in_a_file(call, printed, tmp_path):
    path = tmp_path / "my-gpu.toml"
    document = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text(encoding="utf-8")
    path.write_text(re.search(r"```toml\n(.*?)```", document, re.DOTALL).group(1))
    assert "NVIDIA RTX A5000" in printed("gpus", "show", path)
    out = printed(*PREDICT[:-1], path)
    assert "NVIDIA RTX A5000 has no predictor of its own" in out
    path.write_text("sms = 80\npower_limit_w = 300")
    code, _, err = call(*PREDICT[:-1], path)
    assert code == 2
    assert 'lacks "name"' in err
    assert 'given:   "sms", "power_limit_w"' in err


def test_train_and_evaluate_end_to_end(printed, tmp_path):
    data = simulated_dataset()
    folder = save(data, tmp_path / "data")
    (tmp_path / "r.toml").write_text('predictor = "forest"\ntrees = 4\nfolds = 3\n')
    common = ("--dataset", folder, "--recipe", tmp_path / "r.toml", "--no-track")
    assert "networks by name" in printed("train", *common, "--zoo", tmp_path / "zoo")
    entry = tmp_path / "zoo" / "a30" / "forest-inference"
    printed("predict", "resnet18", "8,3,64,64", "--gpu", "A30", "--precision", "fp32", "--predictor", entry)
    printed("evaluate", *common, "--out", tmp_path / "report")
    report = (tmp_path / "report" / "REPORT.md").read_text()
    assert "| resnet18 | 8x3x64x64 | fp32 |" in report


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_datasets_that_cannot_be_trained_on_are_refused_with_the_reason(call, tmp_path, command):
    data = simulated_dataset()
    networks_alone = save(replace(data, measurements=()), tmp_path / "networks")
    on_cpu = save(replace(data, card=replace(data.card, gpu="CPU AMD EPYC"), networks=()), tmp_path / "cpu")
    code, out, err = call(command, "--dataset", networks_alone, "--recipe", "forest", "--no-track")
    assert (code, out) == (4, "")
    assert "no usable operation was measured" in err
    assert f"{networks_alone}, 2 networks" in err
    code, out, err = call(command, "--dataset", on_cpu, "--recipe", "any-gpu", "--no-track")
    assert (code, out) == (2, "")
    assert "a predictor for any GPU is trained on measurements of GPUs" in err
    assert "--recipe forest" in err


def test_several_recipes_are_compared(printed, tmp_path):
    folders = [arg for name in ("A30", "T4") for arg in ("--dataset", save(simulated_gpu(name), tmp_path / name))]
    (tmp_path / "trees.toml").write_text('predictor = "boosting"\ntrees = 20\nlearning_rate = 0.3\nfolds = 2\n')
    (tmp_path / "physics.toml").write_text('predictor = "roofline"\nfolds = 2\n')
    recipes = ["--recipe", tmp_path / "trees.toml", "--recipe", tmp_path / "physics.toml"]
    out = printed("train", *folders, *recipes, "--zoo", tmp_path / "zoo", "--no-track")
    for name in ("boosting", "roofline"):
        assert (tmp_path / "zoo" / "any-gpu" / name / "manifest.json").is_file()
    table = out[out.rindex("recipe ") :].splitlines()[2:]
    means = {tuple(re.split(r"  +", line)[:3]): re.split(r"  +", line)[5] for line in table}
    # The mean of 1 - 1 / slowdown over SLOWER_THAN_PHYSICS: 2.0, 1.2, 1.3 and 1.5.
    assert means["physics", "all GPUs", "operations in folds"] == "30.8 %"
    assert float(means["trees", "all GPUs", "operations in folds"].split()[0]) < 15
    out = printed("evaluate", *folders, *recipes, "--out", tmp_path / "report", "--no-track")
    assert "| physics | all GPUs | operations by chip | 200 |" in (tmp_path / "report" / "COMPARISON.md").read_text()
    assert "### Operations by chip" in (tmp_path / "report" / "trees" / "REPORT.md").read_text()


def test_networks_at_several_clocks_become_a_dataset_each(printed, tmp_path):
    lines = [
        "campaign,gpu,network,precision,batch,sequence,clock_setpoint_mhz,clock_mhz,time_ms,energy_j,power_w,total_s"
    ]
    for clock in (600, 900):
        lines.append(f"dvfs,NVIDIA A10,resnet101_,fp32,8,,{clock},{clock}.0,{9000 / clock},0.9,{clock / 10},31")
    (tmp_path / "networks.csv").write_text("\n".join([*lines, ""]))
    out = printed("datasets", "import", "energaizer2026", tmp_path, "--out", tmp_path / "out")
    assert out.count("0 measurements") == 2
    out = printed("datasets", "show", tmp_path / "out" / "a10" / "600-mhz")
    assert "NVIDIA A10, 600 MHz" in out
    assert "1 resnet101, default, 600 to 600 MHz held" in out
    assert "measured: unknown" in out


def test_best_says_on_which_gpus_anything_was_measured(printed):
    out = printed("best", "resnet18", "8,3,224,224", "--gpu", "A30,GH200 144GB")
    assert re.search(r" GH200 144GB .* no  ", out)
    assert re.search(r" A30 .* yes  ", out)


def test_arguments_become_options_and_parts_of_words_do_not():
    assert in_option_words("price_per_hour (a number), price_per_kwh") == "--price-per-hour (a number), --price-per-kwh"
    assert in_option_words("max_time_seconds and my_max_time_s") == "max_time_seconds and my_max_time_s"
    assert in_option_words("tensor_parallel=1, context_parallel=2") == "--tensor-parallel=1, --context-parallel=2"
    assert in_option_words("a GPU, such as gpu='A30', not --gpu=3") == "a GPU, such as --gpu='A30', not --gpu=3"
    assert in_option_words("a shape such as [32, 3, 224]; 1, 2") == "a shape such as 32,3,224; 1, 2"


@pytest.mark.parametrize("command", ["published", "account study", "account graph", "datasets convert"])
def test_a_package_without_its_repository_says_so(call, tmp_path, monkeypatch, command):
    monkeypatch.setattr(machine, "_BENCHMARKS", tmp_path / "benchmarks")
    code, _, said = call(*command.split(), "--help")
    assert code == 2
    assert all(part in said for part in ("a script of the repository", "given:", "allowed:", "next:", command))


def test_arguments_and_the_exit_code_are_those_of_the_script(call, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_BENCHMARKS", tmp_path)
    (tmp_path / "variants.py").write_text("import sys; sys.exit(3 if sys.argv[1:] == ['gpt2', '--gpu', 'A30'] else 4)")
    assert call("account", "study", "gpt2", "--gpu", "A30")[0] == 3


def test_help_is_whole_and_has_no_types_of_python(printed):
    said = printed("--help") + printed("zoo", "--help")
    assert "Simulate a language model that serves requests as they arrive: latencies" in " ".join(said.split())
    assert "..." not in said.replace("[ARGS]...", "")
    options = (
        printed("predict", "--help").partition("Options:")[2] + printed("sweep", "--help").partition("Options:")[2]
    )
    assert {"--power-limit NUMBER", "--gpu TEXT", "--plot PATH"} <= set(re.findall(r"--[a-z-]+ [A-Z]+", options))
    assert "<" not in options
    assert "predict [OPTIONS] {MODEL} [SHAPE]..." in printed("predict", "--help")


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from joulecast.cli import main; main(sys.argv[1:])"


@pytest.mark.parametrize(
    "command",
    [
        ("account", *NETWORK),
        ("account", "bert_base", "2,8"),
        ("collect", "small", "--out", "nowhere"),
        ("extract", "fcn_resnet50", "1,3,32,32"),
    ],
    ids=" ".join,
)
def test_without_torch_a_command_says_how_to_install_it(command):
    found = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *command], capture_output=True, text=True, check=False)
    assert found.returncode == 7
    assert "pip install '.[" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
def test_weights_are_no_model(call, tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x02")
    code, _, err = call("predict", tmp_path / name, "1,3", "--gpu", "A30")
    assert code == 2
    assert "weights do not say what a model computes" in err
