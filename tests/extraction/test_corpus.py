"""A corpus of models: each is fully covered, or its answer says what is not; FLOPs equal PyTorch's count.

A sample here; all of benchmarks/corpus.py with `pytest -m slow tests/extraction/test_corpus.py`, about fifteen minutes.
"""

import importlib.util

import pytest

import joulecast
from conftest import benchmark
from joulecast.errors import UncoveredError
from joulecast.predictors.networks.costs import INCOMPLETE, MOST_UNCOVERED_SHARE

for library in ("timm", "transformers"):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"the corpus needs {library}", allow_module_level=True)

SAMPLE = [
    # Detection, optical flow, segmentation, video and a quantized model.
    *[("torchvision", name) for name in ("ssd300_vgg16", "raft_small", "lraspp_mobilenet_v3_large", "swin3d_t", "s3d")],
    ("torchvision", "quantized_googlenet"),
    ("timm", "convnext_atto"),
    *[("transformers", name) for name in ("mixtral", "switch_transformers")],
]
COVERED = 0.995
"""Least share of all FLOPs, and of all bytes, that operations stand for."""


@pytest.fixture(scope="module")
def corpus():
    with benchmark("corpus") as module:
        yield module


def check(result) -> None:
    """Every answer names what is not covered, and products have the FLOPs that PyTorch counts."""
    if result.network is None:
        assert result.error  # a JoulecastError, with the module and what it raised
        return
    if result.counted_flops:
        # A recurrent layer is one operation, whose FLOPs contain its gates; PyTorch's counter counts products alone.
        recurrent = any(entry.operation.kind in ("lstm", "gru", "rnn") for entry in result.network)
        assert result.product_flops == pytest.approx(result.counted_flops, rel=5e-3 if recurrent else 1e-3)
    share = result.coverage.share
    assert share is not None
    if share > MOST_UNCOVERED_SHARE:
        with pytest.raises(UncoveredError, match="too much"):
            joulecast.predict(result.network, None, "H100 SXM")
        return
    prediction = joulecast.predict(result.network, None, "H100 SXM")
    assert prediction.uncovered_share == share
    assert (INCOMPLETE in str(prediction)) == bool(result.network.uncounted)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("library", "name"), SAMPLE, ids=[name for _, name in SAMPLE])
def test_a_sample_of_models_is_covered_or_says_what_is_not(corpus, library, name, mode):
    check(corpus.result_of(corpus.Case(library, name, mode)))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("library", ["torchvision", "timm", "transformers"])
def test_the_whole_corpus_is_covered(corpus, library):
    results = [corpus.result_of(case) for case in corpus.cases(library)]
    for result in results:
        check(result)
    known = [result for result in results if result.network is not None]
    assert len(known) > 0.8 * len(results)
    for what in ("flops", "moved_bytes"):
        assert corpus.covered_share(known, what) >= COVERED, what
