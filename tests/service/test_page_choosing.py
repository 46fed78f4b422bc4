"""The page in a real browser: choosing GPUs, limits and prices, files, links, and text that a model generates."""

import json

import pytest

import joulecast
from joulecast.units import duration, si
from service_process import PROFILE

RESNET = "#model=resnet18&shape=8+x+3+x+224+x+224"
SHAPE = (8, 3, 224, 224)
ENTER = "\n"


def chips(page):
    return page.texts("#chosen li span")


def add(page, name):
    """Type a name and wait for what comes of it: a message, or another answer."""
    before = chips(page)
    page.js("document.getElementById('gpu-help').textContent = ''; document.getElementById('gpu').value = ''")
    page.find("#gpu").send_keys(name)
    page.find("#add-gpu").click()
    page.until(lambda: page.text("#gpu-help") or chips(page) != before)
    return page.wait().text("#gpu-help")


def test_names_that_the_catalogue_does_not_list_are_answered(page):
    page.open(f"{RESNET}&gpus=A30")
    assert add(page, "H100") == "H100 was taken for H100 SXM."
    assert chips(page) == ["A30", "H100 SXM"]
    hint = add(page, "A100")
    assert hint.startswith("Several GPUs have this name: ")
    assert "A100 PCIe 80GB" in hint
    assert add(page, "A31").startswith("No GPU is called A31; did you mean A")
    assert add(page, "") == "Type the name of a GPU, such as A30."
    assert chips(page) == ["A30", "H100 SXM"]
    # That the service knows no such name is a refusal, which the browser lists.
    assert all("404" in line for line in page.complaints())


def test_a_row_and_a_point_add_their_gpus(page):
    page.open(f"{RESNET}&gpus=A30,L4,T4")
    best = joulecast.best("resnet18", SHAPE)
    page.find("#best tbody tr .link").click()
    page.wait()
    assert chips(page) == ["A30", "L4", "T4", best[0].alias]
    page.find("#front").send_keys("\ue014" * 3)  # arrow right
    named = page.text("#front-readout").split(" at ")[0]
    page.find("#front").send_keys(ENTER)
    page.wait()
    # Four can be compared: the next takes the place of the last.
    assert chips(page)[:3] == ["A30", "L4", "T4"]
    assert chips(page)[3] == named
    assert page.complaints() == []


def test_limits_and_prices_are_those_of_the_library(page):
    limits = "&deadline=30&budget=200&cap=150&batches=4,+16&objective=cost&price=A30=0.5,+L4=0.7,+T4=0.3"
    page.open(f"{RESNET}&gpus=A30,B200{limits}")
    options = {"power_limit_w": 150.0, "batch_sizes": [4, 16], "max_time_s": 0.03, "max_power_w": 200.0}
    price = {"A30": 0.5, "L4": 0.7, "T4": 0.3}
    assert page.text("#missing").startswith("Left out: B200: ")  # which cannot be given 150 W
    assert "(the power of this GPU cannot be capped at this value" in page.text("#left-out")
    best = joulecast.best("resnet18", SHAPE, objective="cost", price_per_hour=price, **options)
    rows = [row.split() for row in page.texts("#best tbody tr")]
    assert len(rows) == len(best)
    assert [row[1] for row in rows] == [choice.alias for choice in best]
    assert [row[2] for row in rows] == [f"{1e6 * choice.value:.3g}" for choice in best]
    assert "batch" in page.texts("#best thead th")
    calls = page.text("#calls")
    assert 'price_per_hour={"A30": 0.5, "L4": 0.7, "T4": 0.3}, max_time_s=0.03, max_power_w=200' in calls
    assert "--price-per-hour A30=0.5,L4=0.7,T4=0.3 --max-time 0.03 --max-power 200 --batch-sizes 4,16" in calls
    page.complaints()


def test_a_link_restores_a_pasted_list(page):
    page.open("#view=operations&gpus=A30")
    listed = {
        "operations": [{"kind": "relu", "input_shapes": [[64, 1000]], "count": 7}],
        "name": "seven",
        "input_shape": [64, 1000],
    }
    page.choose("#operations", json.dumps(listed, indent=3))
    assert page.text("#headline").startswith("seven")
    page.until(lambda: "list=" in page.js("return location.hash"))
    energy, link = page.texts(".value")[2], page.js("return location.hash")
    page.open(link)
    assert json.loads(page.find("#operations").get_attribute("value")) == listed
    assert page.texts(".value")[2] == energy
    page.open(link[:-9])  # A mail program may cut a link off.
    assert page.find("#problem").is_displayed()
    assert page.complaints() == []
    page.choose("#operations", json.dumps([{"kind": "relu", "input_shapes": [[n] for n in range(1, 40_000)]}]))
    page.until(lambda: "too long for a link" in page.text("#link-help"))
    assert "list=" not in page.js("return location.hash")
    assert all("422" in line for line in page.complaints())  # A relu has one input.


def test_a_network_is_read_from_a_file(page, tmp_path):
    network = joulecast.extract("alexnet", (4, 3, 224, 224))
    network.save(tmp_path / "network.json")
    page.open("#view=operations&gpus=A30")
    page.find("#file").send_keys(str(tmp_path / "network.json"))
    page.until(lambda: page.text("#headline").startswith("alexnet"))
    page.wait()
    assert page.texts(".value")[2] == si(joulecast.predict(network, None, "A30").energy_j, "J")
    assert page.text("#file-help") == f"network.json: {len(network)} operations, input 4 x 3 x 224 x 224."
    (tmp_path / "broken.json").write_text("{")
    page.find("#file").send_keys(str(tmp_path / "broken.json"))
    page.until(lambda: page.text("#problem").startswith("this file is no JSON"))
    assert page.complaints() == []


LOAD = {"prompt_tokens": 300, "output_tokens": 200}
SERVED = {"requests": 4, "duration_s": 20, "max_sequences": 16, "tensor_parallel": 1, "router": "least_loaded"}
TRAINED = {"samples": 5e4, "epochs": 2, "precision": "bf16", "carbon": "DE"}


def generated(gpu):
    found = joulecast.predict_generation("llama3_1_8b", gpu, batch=16, **LOAD)
    seconds = [si(value, "s") for value in (found.time_per_output_token_s, found.time_to_first_token_s)]
    return [*seconds, si(found.power_w, "W"), si(found.energy_per_token_j, "J")]


def drawn(gpu):
    found = joulecast.predict_image("sd3_5_medium", gpu, batch=2, steps=20)
    return [si(found.time_per_image_s, "s"), si(found.power_w, "W"), si(found.energy_per_image_j, "J")]


def trained(gpus):
    found = joulecast.predict_run("bert_base", (32, 128), gpus, **TRAINED)
    return [duration(found.time_s), *(f"{joules / 3.6e6:.3g} kWh" for joules in (found.energy_j, found.wall_energy_j))]


def served(gpus):
    found = joulecast.simulate_serving("qwen3_0_6b", gpus, level=0.9, **SERVED, **LOAD)
    seconds = [si(value, "s") for value in (found.ttft_s(0.99), found.tpot_s(0.99))]
    return [*seconds, si(found.power_w, "W"), si(found.energy_per_token_j, "J")]


VIEWS = {
    "generation": (
        "llm=llama3_1_8b&prompt=300&output=200&batch=16&gpus=H100+SXM,T4,L40S&pace=40",
        generated,
        ["H100 SXM", "L40S"],
        "Left out: T4: ",
        ['joulecast.predict_generation("llama3_1_8b", "H100 SXM", batch=16', "--max-time-per-token 0.04"],
        ("#output", "this is no number of tokens"),
    ),
    "images": (
        "pipeline=sd3_5_medium&copies=2&steps=20&gpus=H100+SXM,P4,L40S",
        drawn,
        ["H100 SXM", "L40S"],
        "Left out: P4: ",
        ["joulecast image sd3_5_medium --gpu 'H100 SXM' --batch 2 --steps 20"],
        ("#steps", "this is no number of steps"),
    ),
    "runs": (
        "model=bert_base&shape=32+x+128&samples=50000&epochs=2&together=8&objective=carbon&price=DE&gpus=A30,L4",
        trained,
        ["8x A30", "8x L4"],
        "",
        ["joulecast run bert_base 32,128 --gpu '8x A30' --samples 50000 --epochs 2 --precision bf16 --carbon DE"],
        ("#samples", "this is no number of samples"),
    ),
    "traffic": (
        "llm=qwen3_0_6b&prompt=300&output=200&batch=16&rate=4&seconds=20&boards=2&gpus=L4&wait=200",
        served,
        ["2x L4"],
        "",
        ["joulecast simulate qwen3_0_6b '2x L4' --rate 4 --prompt 300 --output 200", "--p99-first-token 0.2"],
        ("#rate", "this is no rate"),
    ),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_that_of_the_library(page, view):
    address, shown, gpus, left_out, calls, (field, problem) = VIEWS[view]
    page.open(f"#view={view}&{address}")
    assert page.texts(f"#{view}-cards h3") == [gpu.replace("x ", " \u00d7 ") for gpu in gpus]
    for place, gpu in enumerate(gpus, 1):
        assert page.texts(f"#{view}-cards .card:nth-child({place}) .value") == shown(gpu)
    if left_out:
        assert page.text(f"#{view}-missing").startswith(left_out)
    assert all(call in page.text(f"#{view}-calls") for call in calls)
    page.choose(field, "many")
    assert page.text("#problem").startswith(problem)
    # That a GPU lacks memory or a precision is a refusal, which the browser lists.
    assert all("422" in line for line in page.complaints())


def test_the_best_ways_are_those_of_the_library(page):
    page.open("#view=generation&llm=llama3_1_8b&prompt=300&output=200&batch=16&gpus=H100+SXM&pace=40")
    ways = joulecast.best_generation("llama3_1_8b", max_time_per_output_token_s=0.04, **LOAD)
    assert si(ways[0].energy_per_token_j, "J") in page.text("#ways tbody tr")
    label = page.find("#serving").get_attribute("aria-label")
    for end in (ways.pareto()[0], ways.pareto()[-1]):
        assert f"batch {end.batch} at {end.clock_mhz:g} MHz: {si(end.time_per_output_token_s, 's')}" in label
    page.open(f"#view=runs&{VIEWS['runs'][0]}")
    page.find("#where-run-find").click()
    page.until(lambda: page.texts("#where-run tbody tr"))
    best = joulecast.best_run("bert_base", (32, 128), gpus=["A30", "L4"], counts=[1, 8], objective="carbon", **TRAINED)
    assert len(page.texts("#where-run tbody tr")) == len(best)
    assert duration(best[0].time_s) in page.text("#where-run tbody tr")


def test_published_runs_stand_beside_predictions(page, service):
    rows = service.ask("/v1/scoreboard").json["rows"]
    page.open("scoreboard")
    assert page.text("#count") == f"{len(rows)} of {len(rows)} rows"
    page.js("const f = document.querySelector('#filter'); f.value = 'h100 flux'; f.dispatchEvent(new Event('input'))")
    shown = [row for row in rows if "H100" in row["gpu"] and "flux" in row["task"]]
    assert len(page.texts("#scores tbody tr")) == len(shown) > 0
    assert f"{100 * shown[0]['energy']['error']:.0f} %" in page.texts("#scores tbody tr")[0]
    page.complaints()


def test_the_api_is_documented(page, service):
    page.open("docs")
    paths = service.ask("/v1/openapi.json").json["paths"]
    listed = page.texts("summary code")
    assert sorted(listed) == sorted(f"{method.upper()} {path}" for path, methods in paths.items() for method in methods)
    page.find("summary").click()
    assert "clock_mhz" in page.text("details[open] table")
    found = joulecast.predict("resnet50", (32, 3, 224, 224), "A30")
    body = '{"model": "resnet50", "input_shape": [32, 3, 224, 224], "gpu": "%s"}'
    for gpu, said in (("A30", f'"energy_j": {found.energy_j}'), ("A31", "unknown GPU")):
        page.js("document.querySelector('details[open] textarea').value = arguments[0]", body % gpu)
        page.find("details[open] button").click()
        page.until(lambda said=said: said in page.text("details[open] .answer"))
    assert all("422" in line for line in page.complaints())


def test_a_calibration_is_sent_with_questions_about_its_gpu(page, tmp_path):
    PROFILE.write(tmp_path / "desk.json")
    (tmp_path / "other.json").write_text('{"kind": "network"}')
    page.open(f"{RESNET}&gpus=A30,L4")
    page.js("document.getElementById('more').open = true")
    uncalibrated = {gpu: joulecast.predict("resnet18", SHAPE, gpu).time_s for gpu in ("A30", "L4")}
    page.find("#calibration").send_keys(str(tmp_path / "desk.json"))
    page.until(lambda: "those of this board" in page.text("#calibration-help"))
    page.wait()
    assert chips(page) == ["A30", "L4", "H100 SXM"]
    expected = joulecast.predict("resnet18", SHAPE, "H100 SXM", calibration=PROFILE).time_s
    for gpu, time_s in {**uncalibrated, "H100 SXM": expected}.items():
        (card,) = (text for text in page.texts(".card") if text.startswith(gpu))
        assert si(time_s, "s") in card
    assert "--calibration desk.json" in page.text("#calls")
    page.find("#no-calibration").click()
    page.until(lambda: "--calibration" not in page.text("#calls"))
    page.find("#calibration").send_keys(str(tmp_path / "other.json"))
    page.until(lambda: page.text("#problem").startswith("this file is no calibration"))
    assert not page.complaints()
