"""The page in a real browser: what it shows is what the library says."""

from __future__ import annotations

import pytest
from browser import AXE, Page

import joulecast
from joulecast.predictors.networks.execution import EXECUTIONS
from joulecast.units import si
from service_process import TOKEN


def test_shows_what_the_library_says(page):
    page.open("#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30,L4")
    assert page.texts(".card h3") == ["A30", "L4"]
    for place, gpu in enumerate(("A30", "L4")):
        prediction = joulecast.predict("resnet18", (8, 3, 224, 224), gpu)
        shown = page.texts(f".card:nth-child({place + 1}) .value")
        expected = [(prediction.time_s, "s"), (prediction.power_w, "W"), (prediction.energy_j, "J")]
        assert shown == [si(value, unit) for value, unit in [*expected, (prediction.edp_js, "Js")]]
    low, high = joulecast.predict("resnet18", (8, 3, 224, 224), "A30").interval(0.9).energy_j
    assert f"{si(low, 'J')} to {si(high, 'J')}" in page.text(".card:nth-child(1)")
    assert "never measured" in page.text(".card:nth-child(2)")
    assert "never measured" not in page.text(".card:nth-child(1)")
    assert page.complaints() == []


def test_a_model_and_two_gpus_are_chosen(page):
    page.open()
    page.choose("#model", "mobilenet_v2")
    assert page.find("#shape").get_attribute("value") == "32 x 3 x 224 x 224"
    page.find("[aria-label='Remove H100 SXM']").click()
    page.wait()
    page.find("#gpu").send_keys("l4\n")
    page.wait()
    assert page.texts(".card h3") == ["A30", "L4"]
    assert "mobilenet_v2" in page.text("#headline")
    assert page.js("return document.querySelectorAll('.plot canvas').length") == 3
    sweep = joulecast.sweep("mobilenet_v2", (32, 3, 224, 224), gpus=["A30"])
    assert f"A30: least energy at {sweep.best().clock_mhz:g} MHz" in page.texts("#curves-key li")
    page.find("#energy-curve").send_keys("\ue014")  # arrow right
    assert "A30 at 210 MHz" in page.text("#energy-readout")
    assert page.complaints() == []


def test_another_objective_has_another_optimum(page):
    page.open("#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30,T4")
    page.choose("#objective", "edp")
    sweep = joulecast.sweep("resnet18", (8, 3, 224, 224), gpus=["A30"], objective="edp")
    assert f"at {sweep.best().clock_mhz:g} MHz" in page.texts("#curves-key li")[0]
    best = joulecast.best("resnet18", (8, 3, 224, 224), objective="edp")
    row = page.text("#best tbody tr")
    for text in (best[0].alias, si(best[0].value, "Js"), si(best[0].time_s, "s"), si(best[0].energy_j, "J")):
        assert text in row
    page.choose(".card:nth-child(1) select", "optimum")
    prediction = joulecast.predict("resnet18", (8, 3, 224, 224), "A30", sweep.best().clock_mhz)
    assert page.texts(".card:nth-child(1) .value")[2] == si(prediction.energy_j, "J")
    assert f'"A30", {sweep.best().clock_mhz:g})' in page.text("#calls")
    assert page.complaints() == []


def share_text(tree, node):
    return f"{node.name} {100 * node.total.energy_j / tree.total.energy_j:.1f} %"


def test_modules_open_by_the_keyboard(page):
    page.open("#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30")
    tree = joulecast.predict("resnet18", (8, 3, 224, 224), "A30").tree()
    assert page.js("return document.querySelectorAll('#modules [tabindex=\"0\"]').length") == 1  # one tab stop
    largest = max(tree.root.children, key=lambda node: node.total.energy_j)
    page.find("#modules [tabindex='0']").send_keys("\ue015")  # arrow down: into the largest module
    focused = page.driver.switch_to.active_element
    assert f"{share_text(tree, largest)}, {si(largest.total.energy_j, 'J')} (" in focused.get_attribute("aria-label")
    assert page.text("#module-readout") == focused.get_attribute("aria-label")
    second = sorted(tree.root.children, key=lambda node: -node.total.energy_j)[1]
    focused.send_keys("\ue014")  # arrow right: the next one
    focused = page.driver.switch_to.active_element
    assert f"{share_text(tree, second)}, {si(second.total.energy_j, 'J')} (" in focused.get_attribute("aria-label")
    assert page.js("return document.querySelectorAll('#modules [tabindex=\"0\"]').length") == 1
    focused.send_keys("\n")
    assert page.text("#trail").startswith("resnet18")
    assert f"{second.name}: {si(second.total.energy_j, 'J')}" in page.text("#trail")
    page.driver.switch_to.active_element.send_keys("\ue00c")  # Escape: back to the whole model
    assert second.name not in page.text("#trail")
    assert page.complaints() == []
    rows = page.texts("#costs tbody tr")
    costs = sorted(joulecast.predict("resnet18", (8, 3, 224, 224), "A30").operations, key=lambda c: -c.energy_j)
    assert si(costs[0].energy_j, "J") in rows[0]
    assert costs[0].bound_by in rows[0]


def test_a_graph_on_a_faster_host(page):
    page.open("#model=resnet18&shape=1+x+3+x+224+x+224&gpus=A30")
    options = [e.get_attribute("value") for e in page.driver.find_elements("css selector", "#execution option")]
    assert options == list(EXECUTIONS)
    for execution, host in (("graph", "reference"), ("eager", "h100-server")):
        page.choose("#execution", execution)
        page.choose("#host", host)
        prediction = joulecast.predict("resnet18", (1, 3, 224, 224), "A30", execution=execution, host=host)
        assert page.texts(".card .value")[0] == si(prediction.time_s, "s")
    assert 'host="h100-server"' in page.text("#calls")
    assert "host=h100-server" in page.js("return location.hash")
    page.open(page.js("return location.hash"))
    assert page.find("#host").get_attribute("value") == "h100-server"
    assert page.complaints() == []


def test_training_is_drawn_by_phase(page):
    page.open("#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30&mode=training")
    tree = joulecast.predict("resnet18", (8, 3, 224, 224), "A30", mode="training").tree()
    labels = [
        e.get_attribute("aria-label") for e in page.driver.find_elements("css selector", "#modules [aria-level='2']")
    ]
    for phase in tree.root.children:
        assert any(f"{share_text(tree, phase)}, {si(phase.total.energy_j, 'J')}" in label for label in labels)


def test_operations_are_pasted_and_faults_are_shown(page):
    page.open()
    page.js("document.querySelector('[name=subject][value=operations]').click()")
    page.wait()
    assert "linear" in page.text("#costs")
    page.js("document.querySelector('[name=subject][value=model]').click()")
    page.choose("#shape", "32 x three")
    assert page.find("#problem").is_displayed()
    page.choose("#shape", "8 x 3 x 224 x 224")
    assert not page.find("#problem").is_displayed()
    # A refusal is a failed request, which the browser lists; nothing else is wrong.
    assert all("422" in message for message in page.complaints())


@pytest.mark.parametrize(
    ("field", "typed", "title"),
    [
        ("#shape", "32 x three", "this is not an input shape"),
        ("#shape", "0 x 128", "this is not an input shape"),
        ("#shape", "[8,", "the input shape is no JSON"),
        ("#model", "", "no model is named"),
        ("#cache", "many", "this is no number of tokens"),
    ],
)
def test_invalid_questions_are_reported_without_a_request(page, field, typed, title):
    page.open("#model=bert_base&shape=8+x+128&gpus=A30")
    page.choose(field, typed)
    assert page.text("#problem").startswith(title)
    assert "answer to the question before" in page.text("#problem")
    assert page.js("return document.getElementById('answers').className") == "stale"
    assert page.complaints() == []
    page.open("#model=bert_base&shape=8+x+128&gpus=A30")
    assert page.js("return document.getElementById('answers').className") == ""


@pytest.mark.parametrize("pasted", ["", "[", "null", "{}", "[]"])
def test_invalid_lists_of_operations_are_reported(page, pasted):
    page.open()
    page.js("document.querySelector('[name=subject][value=operations]').click()")
    page.wait()
    page.choose("#operations", pasted)
    assert "operations" in page.text("#problem strong")
    assert "joulecast extract" in page.text("#problem")
    assert page.complaints() == []


def test_a_tiny_operation_is_drawn(page):
    page.open()
    page.js("document.querySelector('[name=subject][value=operations]').click()")
    page.wait()
    page.choose("#operations", '{"operations": [{"kind": "relu", "input_shapes": [[4]]}], "name": "tiny"}')
    assert page.text("#headline").startswith("tiny")
    assert page.complaints() == []


def test_the_calls_hold_all_that_was_asked(page):
    page.open("#model=llama3_8b&shape=8+x+1&cache=2048&precision=bf16&gpus=H100+SXM")
    asked = {"precision": "bf16", "cache_length": 2048}
    prediction = joulecast.predict("llama3_8b", (8, 1), "H100 SXM", **asked)
    assert page.texts(".card .value")[2] == si(prediction.energy_j, "J")
    calls = page.text("#calls")
    assert 'joulecast.predict("llama3_8b", (8, 1), "H100 SXM", precision="bf16", cache_length=2048)' in calls
    assert "joulecast predict llama3_8b 8,1 --gpu 'H100 SXM' --precision bf16 --cache-length 2048" in calls
    assert page.complaints() == []


def test_the_address_keeps_the_view(page):
    page.open("#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30,T4&objective=cost&price=2.5")
    best = joulecast.best("resnet18", (8, 3, 224, 224), objective="cost", price_per_hour=2.5)[0]
    assert f"{float(f'{1e6 * best.value:.3g}'):g}" in page.text("#best tbody tr").split()
    page.choose(".card:nth-child(2) select", "optimum")
    shown = page.texts(".value")
    address = page.js("return location.hash")
    page.open(address)
    assert page.texts(".value") == shown
    # Pasted into a page that is open already, an address is another question.
    page.js("location.hash = '#model=resnet34&shape=8+x+3+x+224+x+224&gpus=L4'")
    page.until(lambda: page.text("#headline").startswith("resnet34"))
    page.wait()
    assert page.texts(".card h3") == ["L4"]
    assert page.find("#objective").get_attribute("value") == "energy"


def test_asks_for_a_token(page, narrow):
    other = Page(page.driver, narrow.url)
    other.open()
    for typed, said in [("not-the-token", "needs a token"), (TOKEN, "too many choices")]:
        other.find("#token").send_keys(typed + "\n")
        # This service takes no more than 50 choices, which it says to those who have a token.
        other.until(lambda said=said: said in other.text("#problem"))
        other.wait()
    assert not other.find("#token").is_displayed()
    other.complaints()


def test_the_page_requests_only_its_own_service(page, service):
    page.open()
    loaded = page.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert loaded
    assert all(url.startswith(service.url) for url in loaded)


VIEWS = {
    "model": "#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30,L4&cap=60",
    "generation": "#view=generation&llm=llama3_1_8b&prompt=300&output=200&batch=16&gpus=H100+SXM,L40S&pace=40",
    "images": "#view=images&pipeline=wan_2_1_1_3b&gpus=H100+SXM,L40S",
    "operations": "#view=operations&gpus=A30",
    "docs": "docs",
}


@pytest.mark.parametrize("view", VIEWS)
def test_fits_every_width(page, view):
    page.open(VIEWS[view])
    try:
        for width in (360, 768, 1366, 1920):
            page.resize(width)
            page.until(lambda width=width: page.js("return document.documentElement.scrollWidth") <= width)
    finally:
        page.resize(None)


@pytest.mark.parametrize("view", VIEWS)
def test_is_accessible(page, view):
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm pack axe-core, and its axe.min.js at build/axe.min.js")
    page.open(VIEWS[view])
    page.js("document.querySelectorAll('details').forEach((each, i) => { each.open = i < 9; })")
    try:
        for width, scheme in ((1366, "light"), (360, "dark")):
            page.resize(width, scheme=scheme)
            assert page.faults() == []
    finally:
        page.resize(None)
