"""The tables of the work that joulecast stands on: theirs, theirs repeated, and ours, on one page.

    python benchmarks/published.py [--data ../shared/data] [SECTION ...]
    python benchmarks/published.py --show SECTION ...
    python benchmarks/published.py --reduced

Makes the sections anew that are named, or all whose code, inputs or measurements have changed since, prints them, and
writes them into benchmarks/published/REPORT.md. Rows of docs/sources.md and docs/memory-levels.md with a number of the
page follow it. --show prints sections as they stand there. A test fails when one is older than what made it. With
--reduced, everything runs at a size that takes seconds, on simulated measurements, and nothing but build/published is
written: continuous integration does that. Where the sources' files can be had is said in CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import cpu_networks
import deeppm_tables
import nicolai_clocks
import nicolai_networks
import nicolai_operations
import printed
import published_rows
import simulated_source
from published_page import ROOT, Section, marked, outdated, read_sections, written

from joulecast.datasets import Dataset
from joulecast.datasets.importers.nicolai2025 import import_nicolai2025
from joulecast.predictors.fitting.forms import load_recipe

RECIPE, QUICK_RECIPE = "predictors/forest.toml", "predictors/forest.toml"
PAGE = Path(__file__).parent / "published" / "REPORT.md"
REDUCED_PAGE = Path("build/published/REPORT.md")
NICOLAI = ("nicolai2025/operations.csv", "nicolai2025/networks.csv")
SHIPPED = tuple(f"zoo/{gpu}/forest-{mode}" for gpu in ("a30", "rtx-2080-ti") for mode in ("inference", "training"))
CPU = "zoo/cpu-amd-epyc/forest-inference"
SECTIONS = {
    "operations": Section(
        "Nicolai: single operations",
        ("nicolai_operations.py", "nicolai_features.py"),
        (RECIPE,),
        NICOLAI,
    ),
    "networks": Section(
        "Nicolai: whole networks (tables I and II)", ("nicolai_networks.py",), (RECIPE, *SHIPPED), NICOLAI
    ),
    "clocks": Section("Nicolai: settings and clocks (figures 6.1 to 6.16)", ("nicolai_clocks.py",), SHIPPED),
    "cpu": Section("Nicolai: his outlook, prediction on CPUs", ("cpu_networks.py",), (CPU,)),
    "deeppm": Section(
        "DeepPM: what of it helps on operations of GPUs",
        ("deeppm.py", "deeppm_variants.py", "deeppm_tables.py"),
        ("predictors/transformer.toml",),
        (*NICOLAI, "neusight2025/operations.parquet", "energaizer2026/networks.csv"),
    ),
    "smaragdine": Section(
        "SMARAGDINE: stages and variants of BERT, and how reliable accounting is",
        ("printed.py", "reliability.py"),
        ("examples/stages_of_bert.py", *(f"zoo/{name}" for name in ("any-gpu/forest", "a30/forest-training"))),
    ),
    "delestrac": Section(
        "Delestrac: joules by memory level", ("printed.py",), ("examples/memory_levels.py", "zoo/any-gpu/forest")
    ),
}
HEAD = """# Published tables beside ours

Made by `python benchmarks/published.py`; do not edit. Three columns stand beside one another wherever a source allows \
it: what it printed (published), the same method made again from its measurements (repeated), and joulecast on the \
same measurements and the same split (ours). Where they differ, the reason stands below the table.

Sources: C. Nicolai, On Energy Modeling of Deep Neural Network Operations, master thesis, Heidelberg 2025, and its \
code and run logs; J. Shim et al., DeepPM: Transformer-based Power and Performance Prediction for Energy-Aware \
Software, DATE 2022; C. Mendis et al., Ithemal, ICML 2019; T. Babakol and Y. D. Liu, Tensor-Aware Energy Accounting, \
ICSE 2024; B. Delestrac et al., Analyzing GPU Energy Consumption in Data Movement and Storage, ASAP 2024."""


class Maker:
    """Makes sections from a folder of the sources' files.

    Args:
        data: The folder; simulated measurements of nicolai2025 are below it where `reduced` is true.
        work: Folder with what benchmarks/deeppm.py has trained.
        out: Folder of the page, where plots are put.
        reduced: Whether everything runs at a small size.
    """

    def __init__(self, data: Path, work: Path, out: Path, *, reduced: bool) -> None:
        self.data, self.work, self.out, self.reduced = data, work, out, reduced
        self.source = data / "nicolai2025"
        self.recipe_name = QUICK_RECIPE if reduced else RECIPE
        self.makers: dict[str, Callable[[], str]] = {
            "operations": self.operations,
            "networks": self.networks,
            "clocks": self.clocks,
            "cpu": self.cpu,
            "deeppm": self.deeppm,
            "smaragdine": lambda: printed.section(
                [printed.STAGES] if reduced else [printed.STAGES, printed.VARIANTS, printed.RELIABILITY]
            ),
            "delestrac": lambda: printed.section([] if reduced else [printed.LEVELS]),
        }

    def datasets(self) -> dict[str, Dataset]:
        return {dataset.card.gpu: dataset for dataset in import_nicolai2025(self.source)}

    def operations(self) -> str:
        recipe = load_recipe(ROOT / self.recipe_name)
        return nicolai_operations.section(self.source, self.datasets(), recipe, self.recipe_name, reduced=self.reduced)

    def networks(self) -> str:
        with (self.source / "networks.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return nicolai_networks.section(self.datasets(), load_recipe(ROOT / self.recipe_name), rows, nicolai_clocks.HIS)

    def clocks(self) -> str:
        return nicolai_clocks.section(self.out, reduced=self.reduced)

    def cpu(self) -> str:
        return cpu_networks.section(ROOT / CPU)

    def deeppm(self) -> str:
        fits = [json.loads(file.read_text("utf-8")) for file in sorted(self.work.glob("*-*.json"))]
        if not fits:
            raise SystemExit(
                f"{self.work} has no trainings: `python benchmarks/deeppm.py` makes them in half an hour, and "
                "`python benchmarks/published.py --show deeppm` prints what they gave"
            )
        return deeppm_tables.section(fits, self.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sources' files")
    parser.add_argument("--work", type=Path, default=Path("build/deeppm"), help="what benchmarks/deeppm.py wrote")
    parser.add_argument("--reduced", action="store_true", help="small, on simulated measurements")
    parser.add_argument("--show", action="store_true", help="print sections as they were made, in a second")
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; none for those that are outdated")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        page, data, work = PAGE, arguments.data, arguments.work
        if arguments.reduced:
            page, data, work = REDUCED_PAGE, Path(scratch), Path(scratch) / "deeppm"
            simulated_source.write(data, work)
        page.parent.mkdir(parents=True, exist_ok=True)
        old = page.read_text("utf-8") if page.is_file() and not arguments.reduced else ""
        texts = read_sections(old)
        if arguments.show:
            print("\n\n".join(texts[name] for name in arguments.sections or texts))
            return
        maker = Maker(data, work, page.parent, reduced=arguments.reduced)
        for name in arguments.sections or outdated(old, SECTIONS, data):
            texts[name] = marked(name, SECTIONS[name], data, maker.makers[name]())
            page.write_text(new := written(HEAD, texts, tuple(SECTIONS)), encoding="utf-8")
            if old:
                published_rows.follow(old, new)
                old = new
            print(texts[name] if arguments.sections else f"{name} made", flush=True)


if __name__ == "__main__":
    main()
