"""Energy per access on a simulated GPU of known energies: found within 2 %, with noise, idle drift and warming up."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.optimize import brentq

from conftest import benchmark
from joulecast.errors import SensorError
from joulecast.hardware import find_gpu
from joulecast.hardware.description import gpu_toml
from joulecast.hardware.gpu import MEMORY_LEVELS

pytest.importorskip("torch")
with benchmark("pointer_chase") as pointer_chase:
    from access_energy import ACCESSES, THREADS, Chase, calibrate, over_threads, sizes

KNOWN = {"shared": 82.1e-12, "l1": 107e-12, "l2": 368e-12, "dram": 2090e-12}
DIVIDE_J, STORED = 20e-12, 1.3  # A store costs this many loads.
CACHES, STEP_S = {"l1": 192 * 1024, "dram": 40 << 20}, {"l1": (24e-9, 190e-9), "dram": (190e-9, 420e-9)}
MOST_PER_S = {"shared": 3e12, "l1": 2e12, "l2": 1e11, "dram": 4e10}


class SimulatedGPU:
    """A GPU of 108 multiprocessors on a clock of its own.

    Idle power drifts with the temperature: 55 W and up to 6 W more, with a time constant of a minute; readings of
    energy are wrong by 0.5 % (both rounded up from what Yang et al., arXiv 2312.02741, saw on boards) and by up to half
    an update of the counter on each side. Each launch warms up caches for some joules.
    """

    def __init__(self, noise=0.005, update_s=0.02, known=KNOWN, seed=0, awake_w=0.0, keeps="random", together=1.0):
        self.noise, self.update_s, self.known = noise, update_s, known
        self.awake_w, self.keeps, self.together = awake_w, keeps, together
        self.seen = []
        self.dice = np.random.default_rng(seed)
        self.time_s = 0.0
        self.warmth_w = 0.0

    multiprocessors = 108

    def now_s(self):
        return self.time_s

    def _pass(self, seconds, target_w):
        """Idle joules of a time in which the board warms up or cools down towards its target."""
        decay = math.exp(-seconds / 60)
        mean_w = target_w + (self.warmth_w - target_w) * (1 - decay) * 60 / seconds
        self.warmth_w = target_w + (self.warmth_w - target_w) * decay
        self.time_s += seconds
        return (55.0 + mean_w) * seconds

    def _seen(self, joules, seconds):
        edge_j = self.update_s * joules / seconds
        return joules * (1 + self.noise * self.dice.standard_normal()) + edge_j * self.dice.uniform(-0.5, 0.5)

    def power(self, begin_s, end_s):
        return zip(*(at for at in self.seen if begin_s <= at[0] <= end_s), strict=True)

    def _step_s(self, level, size_bytes):
        """Seconds of a step of one thread, which goes round in an array of this size again and again."""
        near_s, far_s = STEP_S[level]
        fits = CACHES[level] / size_bytes
        missed = 0.0 if fits >= 1 else 1.0  # The least recently used is dropped: all were before they come again.
        if self.keeps == "random" and fits < 1:  # hit = exp(-missed steps of a round / lines of the cache)
            missed = brentq(lambda m: 1 - m - math.exp(-m / fits), 1e-6, 1)
        return near_s + missed * (far_s - near_s)

    def run(self, level, blocks, threads, steps, access="load", size_bytes=None):
        if size_bytes is not None:
            self.time_s += steps * self._step_s(level, size_bytes)
            return Chase(steps * self._step_s(level, size_bytes), 0.0)
        accesses = blocks * threads * steps
        in_flight = blocks * threads / (self.multiprocessors * 1024)
        # A thread waits for each of its steps: it makes one in 5 ns at most.
        per_s = min(MOST_PER_S[level] * min(1.0, 0.05 + 1.2 * in_flight), blocks * threads / 5e-9)
        seconds = 1e-4 + accesses / per_s
        warming_up_j = 0.02
        load_j = self.known[level]
        access_j = {"load": load_j, "store": STORED * load_j, "divide": DIVIDE_J}
        access_j["load+divide"] = self.together * (load_j + DIVIDE_J)
        begin_s, work_j = self.time_s, accesses * access_j[access] + self.awake_w * min(blocks, 108) * seconds
        joules = self._pass(seconds, 6.0) + work_j + warming_up_j
        self.seen += [(begin_s, joules / seconds), (self.time_s, joules / seconds)]
        return Chase(seconds, max(0.0, self._seen(joules, seconds)))

    def idle(self, settle_s, seconds):
        self._pass(settle_s, 0.0)
        begin_s = self.time_s
        self.seen += [(begin_s, 55.0), (begin_s + seconds, 55.0)]
        return self._seen(self._pass(seconds, 0.0), seconds) / seconds, begin_s + seconds / 2


@pytest.mark.parametrize(("seed", "accesses"), [(0, ACCESSES), *((seed, ("load",)) for seed in range(1, 5))])
def test_all_levels_are_found_within_two_percent(seed, accesses):
    """Loads alone, and with them stores, and loads with divisions, too."""
    found = calibrate(SimulatedGPU(seed=seed), accesses=accesses)
    expected = {("shared", "divide"): DIVIDE_J}
    for level, load_j in KNOWN.items():
        expected |= {(level, "load"): load_j, (level, "load+divide"): load_j + DIVIDE_J}
        if level != "l1":  # which writes through, so that no store ends there
            expected[level, "store"] = STORED * load_j
    by_kernel = {(each.level, each.access): each.access_j for each in found.levels}
    assert by_kernel == {kernel: pytest.approx(j, rel=0.02) for kernel, j in expected.items() if kernel[1] in accesses}
    assert found.access_energy_j == {level: by_kernel[level, "load"] for level in KNOWN}
    assert all(each.fit > 0.99 for each in found.levels)
    assert found.notes == ()


def test_loads_alone_and_notes_where_two_accesses_do_not_add_up():
    found = calibrate(SimulatedGPU())
    assert {each.access for each in found.levels} == {"load"}
    assert len(found.idle_w) == 1 + 3 * 4  # before, and after each sweep
    odd = calibrate(SimulatedGPU(together=1.5), levels=("shared", "l2"), accesses=ACCESSES)
    assert sum("and the two alone" in note for note in odd.notes) == 2


def test_the_energy_over_threads_is_what_awake_multiprocessors_share():
    """From a single thread to the plateau, by hand: watts of the awake multiprocessors over accesses per second."""
    awake_w, load_j = 0.4, KNOWN["l1"]
    found = over_threads(SimulatedGPU(noise=0.0, update_s=0.0, awake_w=awake_w), "l1")
    assert found.threads == (1, 108, 108 * 32, *(108 * each for each in THREADS))
    for threads, access_j in zip(found.threads, found.access_j, strict=True):
        per_s = min(MOST_PER_S["l1"] * min(1.0, 0.05 + 1.2 * threads / (108 * 1024)), threads / 5e-9)
        drift_w = 0.5  # What the idle power drifts between the two times at which it is measured.
        expected_j = load_j + awake_w * min(threads, 108) / per_s
        assert access_j == pytest.approx(expected_j, rel=0.02, abs=drift_w / per_s)
    assert list(found.access_j[1:]) == sorted(found.access_j[1:], reverse=True)


@pytest.mark.parametrize(("keeps", "within"), [("random", 0.12), ("least recent", 0.05)])
def test_sizes_of_caches_show_in_the_time_of_a_step(keeps, within):
    gpu = dataclasses.replace(find_gpu("A30"), l1_bytes=128 * 1024, l2_bytes=60 << 20)  # a catalogue that is wrong
    l1, l2 = sizes(SimulatedGPU(keeps=keeps), gpu)
    assert (l1.level, l2.level) == ("l1", "l2")
    assert l1.size_bytes == pytest.approx(CACHES["l1"], rel=within)
    assert l2.size_bytes == pytest.approx(CACHES["dram"], rel=within)
    assert l2.miss_rate[0] == 0
    assert l2.miss_rate[-1] > 0.9
    flat = SimulatedGPU()
    flat._step_s = lambda level, size_bytes: 1e-7
    with pytest.raises(SensorError, match="no end of l1"):
        sizes(flat, gpu)


def test_the_result_is_a_gpu_of_the_catalogues_form(tmp_path):
    """Energies on the chip at a locked clock are those of a lower voltage than the catalogue's."""
    known, found = find_gpu("A30"), calibrate(SimulatedGPU())
    measured, at_900 = (pointer_chase.described(known, found, clock) for clock in (None, 900))
    assert measured.access_energy_j == found.access_energy_j
    assert at_900.access_energy_j["dram"] == found.access_energy_j["dram"]
    assert at_900.access_energy_j["l2"] > 1.1 * found.access_energy_j["l2"]
    (tmp_path / "gpu.toml").write_text(gpu_toml(measured))
    assert find_gpu(tmp_path / "gpu.toml") == measured
    assert "82" in pointer_chase.report(found, None, ())


def test_arrays_lie_in_their_level_and_a_chain_visits_every_node_once():
    for name in ("A100 SXM 80GB", "H100 SXM", "T4", "V100 SXM2 16GB"):
        gpu = find_gpu(name)
        size = pointer_chase.array_bytes(gpu)
        assert size["shared"] == 49152
        assert size["l1"] < gpu.l1_bytes < size["l2"] < gpu.l2_bytes < size["dram"]
    for level in MEMORY_LEVELS:
        for access in ACCESSES:
            source = pointer_chase.source(level, access)
            for text, holds in (("/ one", "divide" in access), ("ld.", "load" in access), ("st.", access == "store")):
                assert (text in source) is holds
    array, seen, at = pointer_chase.chain(999), [], 0
    for _ in range(999):
        seen.append(at)
        at = int(array[at])
    assert at == 0
    assert sorted(seen) == [8 * node for node in range(999)]  # 32 bytes are 8 words
    assert (np.abs(np.diff(seen)) != 8).mean() > 0.9  # The order is not one that a prefetcher could predict.
