"""Traces of GPUs as torch.profiler exports them, written by hand: no GPU is needed to read one."""

import contextlib
import gzip
import json
import subprocess
import sys

import pytest

from joulecast.accounting.account import account_trace
from joulecast.errors import InputError

HOST, STREAM = {"pid": 10, "tid": 10}, {"pid": 0, "tid": 7}


def complete(name, category, start_us, length_us, lane, **given):
    return {"ph": "X", "name": name, "cat": category, "ts": start_us, "dur": length_us, "args": given, **lane}


def written(path, *events, **more):
    path.write_text(json.dumps({"traceEvents": list(events), **more}))
    return account_trace(path)


def host(name, start_us, length_us, **given):
    return complete(name, "cpu_op", start_us, length_us, HOST, **given)


def module(path, start_us, length_us):
    return complete(f"joulecast.module:{path}", "user_annotation", start_us, length_us, HOST)


def kernel(name, start_us, length_us, external_id, category="kernel"):
    given = {"External id": external_id, "device": 0, "stream": 7, "correlation": 1000 + external_id}
    return complete(name, category, start_us, length_us, STREAM, **given)


EVENTS = (
    {"ph": "M", "name": "process_name", "pid": 10, "tid": 10, "args": {"name": "python"}},
    module("", 100, 500),
    module("fc", 110, 200),
    host("aten::linear", 120, 100, **{"External id": 3, "Sequence number": 8, "Fwd thread id": 0}),
    host("aten::addmm", 130, 80, **{"External id": 4, "Sequence number": 8, "Fwd thread id": 0}),
    complete("cudaLaunchKernel", "cuda_runtime", 140, 10, HOST, **{"External id": 4, "correlation": 1004}),
    kernel("gemm", 400, 1000, 4),
    complete("joulecast.module:fc", "gpu_user_annotation", 400, 1000, STREAM, **{"External id": 2}),
    host("autograd::engine::evaluate_function: AddmmBackward0", 700, 100,
         **{"External id": 5, "Sequence number": 8, "Fwd thread id": 1}),
    host("AddmmBackward0", 705, 90, **{"External id": 6, "Sequence number": 8, "Fwd thread id": 1}),
    host("aten::mm", 710, 50, **{"External id": 7}),
    kernel("gemm_tn", 1400, 2000, 7),
    kernel("Memcpy DtoH", 3400, 500, 99, "gpu_memcpy"),
    {"ph": "s", "id": 1, "pid": 10, "tid": 10, "ts": 120, "cat": "fwdbwd", "name": "fwdbwd"},
)  # fmt: skip


def test_kernels_follow_their_operators_forward_and_backward(tmp_path):
    found = written(tmp_path / "t.json", *EVENTS)
    on_gpu = {(row.phase, row.path, row.operation): row.share.time["gpu0"].value
              for row in found.rows if "gpu0" in row.share.time}  # fmt: skip
    assert on_gpu["forward", "fc", "aten::linear"] == pytest.approx(1e-3)
    assert on_gpu["backward", "fc", "AddmmBackward0"] == pytest.approx(2e-3)
    assert on_gpu["forward", "(no module)", "Memcpy DtoH"] == pytest.approx(0.5e-3)


def test_the_origin_is_wall_clock_time(tmp_path):
    found = written(tmp_path / "t.json", *EVENTS, baseTimeNanoseconds=1_790_000_000_000_000_000)
    assert found.events.origin_ns == 1_790_000_000_000_000_000 + 100_000


def test_a_trace_of_a_gpu_alone_has_kernels_without_modules(tmp_path):
    found = written(tmp_path / "t.json", kernel("gemm", 400, 1000, 4))
    assert {row.path for row in found.rows} == {"(no module)"}
    assert "does not say which module" in " ".join(found.notes)


def test_ranges_of_the_user_are_no_operators(tmp_path):
    found = written(tmp_path / "t.json", *EVENTS, complete("step", "user_annotation", 50, 4000, HOST))
    assert "step" not in {row.operation for row in found.rows}


@pytest.mark.parametrize("length_us", ["long", None, "nan"])
def test_an_event_of_impossible_length_is_refused(tmp_path, length_us):
    with pytest.raises(InputError):
        written(tmp_path / "t.json", host("aten::add", 1, length_us))


def test_an_event_that_ends_before_it_starts_is_refused(tmp_path):
    with pytest.raises(InputError, match="ends before it starts"):
        written(tmp_path / "t.json", kernel("gemm", 400, -10, 4))


READ = """
import sys
from joulecast.accounting import chrome_trace
from joulecast.accounting.account import account_trace
from joulecast.errors import InputError
from joulecast.system.limits import limited_memory
chrome_trace._MOST_EVENTS //= 4  # a quarter of the events, and of the memory
with limited_memory(1 << 28):
    try:
        account_trace(sys.argv[1])
        print("read")
    except InputError as error:
        print("refused:", error)
"""
"""A program that reads a trace, in at most 256 MB more than it has after its imports."""


def read_elsewhere(path):
    found = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False)
    return found.stdout + found.stderr[-2000:]


def test_a_small_file_that_unpacks_to_gigabytes_is_read_in_little_memory(tmp_path):
    path = tmp_path / "t.json.gz"
    event = json.dumps(host("aten::mm", 1, 2)).encode() + b","
    # Compressed once, and read as often as it is repeated.
    many = gzip.compress(event * (10 * 2**20 // len(event)), compresslevel=6)
    path.write_bytes(gzip.compress(b'{"traceEvents": [') + 120 * many + gzip.compress(event[:-1] + b"]}"))
    assert read_elsewhere(path).startswith("refused: this trace is too large")


def test_modules_nested_without_end_are_refused(tmp_path):
    frames = [complete(f"nn.Module: Block_{n}", "python_function", n, 100_000 - 2 * n, HOST) for n in range(40_000)]
    with pytest.raises(InputError, match="nested"):
        written(tmp_path / "t.json", *frames, host("aten::mm", 50_000, 1))
    with pytest.raises(InputError, match="nested"):
        written(tmp_path / "t.json", module(".".join(["a"] * 5000), 0, 10), host("aten::mm", 1, 1))


@pytest.mark.parametrize("field", ["pid", "tid", "name", "ts", "dur"])
@pytest.mark.parametrize("value", [[1], {}, 10**400, float("inf"), "x" * 20_000, None])
def test_odd_values_of_fields_are_refused_or_read(tmp_path, field, value):
    for event in (host("aten::mm", 1, 2), kernel("gemm", 1, 2, 4)):
        with contextlib.suppress(InputError):
            written(tmp_path / "t.json", *EVENTS, {**event, field: value})
