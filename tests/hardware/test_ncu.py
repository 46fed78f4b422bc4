"""Counters of `ncu --csv`: sums by hand, units, and files that are something else."""

import pytest

from joulecast.errors import InputError
from joulecast.hardware.ncu import counters_of, metrics, read_counters

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def line(number, kernel, metric, unit, value):
    return (
        f'"{number}","77","python","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(64, 1, 1)","0","8.0",'
        f'"Command line profiler metrics","{metric}","{unit}","{value}"'
    )


TWO_KERNELS = [
    "==PROF== Connected to process 77 (/usr/bin/python3)",
    "epoch 1, loss 2.3",
    HEADER,
    line(0, "ampere_sgemm_128x128_nn(float *, int)", "smsp__sass_data_bytes_mem_shared.sum", "byte", "4,096"),
    line(0, "ampere_sgemm_128x128_nn(float *, int)", "lts__t_sectors_op_read_lookup_hit.sum", "sector", "10"),
    line(0, "ampere_sgemm_128x128_nn(float *, int)", "dram__bytes_read.sum", "Kbyte", "1.5"),
    line(0, "ampere_sgemm_128x128_nn(float *, int)", "dram__bytes_write.sum", "byte", "500"),
    line(0, "ampere_sgemm_128x128_nn(float *, int)", "sm__cycles_elapsed.avg", "cycle", "123"),
    line(1, "relu", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "2"),
    line(1, "relu", "lts__t_sectors_op_read_lookup_hit.sum", "sector", "0"),
    line(1, "relu", "dram__sectors_read.sum", "sector", "3"),
    line(1, "relu", "dram__sectors_write.sum", "sector", "4"),
    "==PROF== Disconnected from process 77",
]


def test_kernels_by_hand():
    """A product and a point-wise kernel, whose counters have other names."""
    product, relu = counters_of(TWO_KERNELS[:8], "a.csv"), counters_of([HEADER, *TWO_KERNELS[8:]], "b.csv")
    assert product == {"shared": 4096, "l1": None, "l2": 320, "dram": 2000}
    assert relu == {"shared": 256, "l1": None, "l2": 0, "dram": 7 * 32}
    assert counters_of(TWO_KERNELS, "c.csv") == {"shared": 4352, "l1": None, "l2": 320, "dram": 2224}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "not what `ncu --csv` writes"),
        (["name,joules", "a,1"], "not what `ncu --csv` writes"),
        ([HEADER.replace('"Metric Unit",', "")], "not what `ncu --csv` writes"),
        ([HEADER], "no counters of memory levels"),
        ([HEADER, line(0, "k", "sm__cycles_elapsed.avg", "cycle", "12")], "no counters of memory levels"),
        ([HEADER, line(0, "k", "dram__bytes_read.sum", "furlong", "12")], "the unit of a counter is not known"),
        ([HEADER, line(0, "k", "dram__bytes_read.sum", "byte", "n/a")], "no counters of memory levels"),
        (
            ["==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"],
            "not allowed to read(?s:.*)NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ([HEADER, line(0, "k" * 200_000, "dram__bytes_read.sum", "byte", "12")], "field larger than"),
    ],
    ids=["empty", "table", "columns", "no kernel", "other metrics", "unit", "none", "permission", "no end"],
)
def test_files_without_counters_are_refused(tmp_path, lines, says):
    (tmp_path / "counters.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match=says):
        read_counters(tmp_path / "counters.csv")


def test_an_incomplete_line_is_ignored(tmp_path):
    assert set(metrics()) >= {"dram__bytes_read.sum", "dram__bytes_write.sum"}
    path = tmp_path / "counters.csv"
    path.write_text("\n".join([*TWO_KERNELS[:-2], '"2","77","python"']))
    assert read_counters(path) == counters_of(TWO_KERNELS[:-2], "whole.csv")
