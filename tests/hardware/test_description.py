"""GPUs that users describe in files."""

import re
from pathlib import Path

import pytest

from joulecast.errors import InputError
from joulecast.hardware import find_gpu, gpus
from joulecast.hardware.description import gpu_toml

DOCUMENT = Path(__file__).parents[2] / "docs" / "gpus.md"
EXAMPLE = re.search(r"```toml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL).group(1)


@pytest.fixture
def described(tmp_path):
    def write(text):
        path = tmp_path / "my-gpu.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def changed(field, value):
    return re.sub(rf"(?m)^{field} = .*$", f"{field} = {value}" if value else "", EXAMPLE)


def test_the_example_of_the_document_is_a_gpu(described):
    path = described(EXAMPLE)
    gpu = find_gpu(str(path))
    assert (gpu.name, gpu.slug, gpu.sms, gpu.power_range_w) == ("NVIDIA RTX A5000", "rtx-a5000", 64, (100, 230))
    assert gpu.idle_curve.at(952.5) == pytest.approx(52.5)
    assert (gpu.voltage.at(300), gpu.voltage.at(1695)) == (700, 950)
    assert find_gpu(path) == gpu
    assert find_gpu(described("[[gpu]]\n" + EXAMPLE)) == gpu
    without = find_gpu(described(EXAMPLE + "tensor_precisions = []"))
    assert [each.on_tensor_cores("fp16") for each in (gpu, without)] == [True, False]
    with pytest.raises(InputError, match="this description of a GPU cannot be read"):
        find_gpu(str(path.with_name("none.toml")))


def test_what_is_known_only_of_measured_boards_may_be_missing(described):
    gpu = find_gpu(described(EXAMPLE.split("# Optional")[0]))
    assert gpu.aliases == (gpu.name,)
    assert gpu.slug == "nvidia-rtx-a5000"
    assert gpu.voltage is gpu.idle_curve is gpu.idle_power_w is None


def test_a_catalogue_entry_comes_back_from_its_file(described):
    """All figures are written and read without loss; an empty list of tensor_precisions is not a missing one."""
    for gpu in gpus().values():
        assert find_gpu(described(gpu_toml(gpu))) == gpu


WRONG = [
    ("unknown field", EXAMPLE + "power_limt_w = 3", 'unknown field.*did you mean "power_limit_w"'),
    ("missing fields", changed("sms", None).replace("l2_bytes", "#"), 'lacks "sms", "l2_bytes"'),
    ("empty file", "", 'lacks "name"'),
    (
        "no type of memory",
        changed("memory_type", None),
        'lacks "memory_type".*"memory_type": a type of memory: "HBM2e"',
    ),
    ("unknown type of memory", changed("memory_type", '"fast"'), "memory_type.*given:   'fast'.*GDDR6"),
    ("number for a truth", changed("inline_ecc", "1"), "inline_ecc.*given:   1.*otherwise false"),
    ("unit of bandwidth", changed("memory_bandwidth", "600"), "memory_bandwidth.*bytes per second"),
    ("text for a number", changed("sms", '"80"'), "sms.*given:   '80'.*whole number of multiprocessors"),
    ("fraction of a multiprocessor", changed("sms", "80.5"), "sms.*whole number"),
    ("not a number", changed("power_limit_w", "nan"), "power_limit_w.*watts"),
    ("no fp32", changed("peak_flops", "{ fp16 = 1e12 }"), "peak_flops.*fp32"),
    ("unknown precision", changed("peak_flops", "{ fp32 = 1e12, fp3 = 2e12 }"), "peak_flops.*bf16"),
    ("list of lists", EXAMPLE + "tensor_precisions = [[]]", "tensor_precisions.*list of precisions"),
    ("clocks the wrong way round", changed("max_clock_mhz", "1500"), "clocks.*contradict.*1695 MHz, 1500 MHz"),
    ("cap outside its range", changed("power_range_w", "[100, 200]"), "power limits.*contradict"),
    ("idle above the cap", changed("idle_power_w", "300"), "powers.*contradict.*300 W without work"),
    ("curve of two lengths", changed("idle_curve", "{ clock_mhz = [1, 2], power_w = [3] }"), "as many power_w"),
    ("board that draws nothing", changed("idle_curve", "{ clock_mhz = [900], power_w = [0] }"), "watts"),
    ("voltage without its bend", changed("voltage", "{ flat_mv = 700 }"), "voltage.*bend"),
    ("no compute capability", changed("compute_capability", '"nan"'), "compute_capability.*gfx90a"),
    ("empty name", changed("name", '""'), "name.*a text"),
    ("month", EXAMPLE + 'released = "May 2020"', "released.*2020-05"),
    ("two GPUs", 2 * ("[[gpu]]\n" + EXAMPLE), "describe exactly one GPU"),
    ("no TOML", "name: RTX A5000", "not valid TOML"),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_one_clear_error(described, text, message):
    with pytest.raises(InputError) as caught:
        find_gpu(described(text))
    assert re.search(message, str(caught.value), re.DOTALL)
    assert caught.value.given is not None
    assert "docs/gpus.md" in (caught.value.hint or "docs/gpus.md")
