"""How a network is run: eager by fast and slow hosts, and as a CUDA graph; against arithmetic by hand."""

import pytest

import joulecast

SMALL, LARGE = (1, 3, 224, 224), (64, 3, 224, 224)


def predicted(shape, **how):
    return joulecast.predict("resnet18", shape, "A30", **how)


def test_a_host_of_half_the_factor_takes_half_the_time_to_launch():
    reference, fast, slow = predicted(SMALL), predicted(SMALL, host=0.5), predicted(SMALL, host=2.0)
    assert fast.host_time_s == pytest.approx(0.5 * reference.host_time_s, rel=1e-12)
    assert slow.host_time_s == pytest.approx(2 * reference.host_time_s, rel=1e-12)
    assert fast.time_s < reference.time_s < slow.time_s
    # While the GPU waits, it draws static power.
    assert fast.energy_j < reference.energy_j < slow.energy_j
    assert any("the host decides the time" in note for note in slow.notes)


@pytest.mark.parametrize(("gpu", "usual"), [("A30", "reference"), ("H100 SXM", "h100-server")])
def test_the_host_that_is_usual_for_the_gpu_launches_where_none_is_named(gpu, usual):
    by_default, named = (joulecast.predict("resnet18", SMALL, gpu, host=host) for host in (None, usual))
    assert (by_default.time_s, by_default.energy_j, by_default.host) == (named.time_s, named.energy_j, usual)
    assert any(f"taken to be {usual}" in note for note in by_default.notes)
    assert not any("taken to be" in note for note in named.notes)
    # Errors are known of networks on whatever host they ran on.
    assert by_default.interval() is not None


def test_where_the_device_decides_the_host_hardly_matters():
    assert predicted(LARGE, host=0.5).time_s == pytest.approx(predicted(LARGE).time_s, rel=0.02)
    assert not any("host decides" in note for note in predicted(LARGE).notes)


# 20 convolutions and normalizations, 17 ReLUs, 8 additions, 2 poolings and a linear layer; in training also 8 additions
# of gradients where a block's input goes two ways.
@pytest.mark.parametrize(("mode", "calls"), [("inference", 68), ("training", 76)])
def test_a_graph_has_one_launch_and_the_kernels_of_an_eager_run(mode, calls):
    eager, graph = predicted(SMALL, mode=mode), predicted(SMALL, mode=mode, execution="graph")
    assert sum(cost.count for cost in graph.operations) == calls
    assert graph.host_time_s == 10e-6
    assert graph.device_time_s == eager.device_time_s
    assert graph.time_s < eager.time_s
    assert graph.execution == "graph"
    assert graph.to_dict()["execution"] == "graph"


def test_intervals_of_eager_runs_are_not_claimed_for_other_hosts_where_they_decide():
    assert predicted(SMALL).interval() is not None
    views = [predicted(SMALL, **how)._repr_html_() for how in ({}, {"host": 0.3})]
    assert ["90 % interval" in view for view in views] == [True, False]
    assert predicted(SMALL, host=0.3).interval() is None
    # Errors were made by the other composition.
    assert joulecast.predict("resnet18", SMALL, "T4", composition="sum").interval() is None
    assert predicted(LARGE, execution="graph").interval() is not None


# 20 convolutions and the linear layer remain. The other operations share 20 kernels, one after each convolution. In
# training, the additions of gradients take two more. A backward is two kernels for each of these.
@pytest.mark.parametrize(("mode", "left", "kernels"), [("inference", 41, 1), ("training", 43, 3)])
def test_compiled_code_launches_what_is_left_of_the_kernels(mode, left, kernels):
    eager, compiled = predicted(SMALL, mode=mode), predicted(SMALL, mode=mode, execution="compiled", host=0.5)
    # The reference host takes 50 us for a call and 8 us for each kernel; this one takes half as long.
    assert compiled.host_time_s == pytest.approx(0.5 * (50e-6 + kernels * left * 8e-6), rel=1e-9)
    assert compiled.time_s < eager.time_s
    assert compiled.execution == "compiled"
    assert compiled.interval() is None
    assert "no interval: no compiled network was measured, so its error is not known" in compiled.notes


def test_compiling_takes_less_off_products_than_off_what_moves_bytes():
    eager, compiled = predicted(LARGE), predicted(LARGE, execution="compiled")
    of_kinds = {}
    for before, after in zip(eager.operations, compiled.operations, strict=True):
        assert after.device_time_s <= before.device_time_s * (1 + 1e-9)
        of_kinds.setdefault(before.operation.kind, []).append(after.device_time_s / before.device_time_s)
    assert min(of_kinds["conv2d"]) > 0.97  # The clock under the cap may differ a little.
    # relu reads and writes what the norm before it wrote: in one kernel, two of four passes are left.
    assert max(of_kinds["relu"]) < 0.75
    assert sum(cost.energy_j for cost in compiled.operations) == pytest.approx(compiled.energy_j, rel=1e-9)


@pytest.mark.parametrize("execution", ["graph", "compiled"])
def test_networks_are_the_same_in_best_and_predict_many(execution):
    how = {"execution": execution, "host": 0.7}
    alone = predicted(SMALL, clock=900, **how)
    best = joulecast.best("resnet18", SMALL, gpus=["A30"], clocks=[900], **how)[0]
    assert (best.time_s, best.energy_j) == pytest.approx((alone.time_s, alone.energy_j), rel=1e-9)
    assert best.notes == alone.notes
    many = joulecast.predict_many(["resnet18"], "A30", 900, input_shape=SMALL, **how)
    assert (many.time_s[0], many.energy_j[0]) == (alone.time_s, alone.energy_j)
