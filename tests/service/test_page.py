"""The page in a real browser: what it shows is what the library says."""

import pytest
from browser import AXE, Page

import joulecast
from joulecast.hardware import find_gpu
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
    one, other = (joulecast.predict("resnet18", (8, 3, 224, 224), gpu) for gpu in ("A30", "L4"))
    facts = page.texts(".card:nth-child(1) .facts dd")
    assert facts[0] == f"{float(f'{8 / one.time_s:.3g}'):,.0f}"  # images per second
    assert facts[1] == f"{si(one.memory_bytes, 'B')} of {si(find_gpu('A30').memory_bytes, 'B')}"
    slower, energy = other.time_s / one.time_s, other.energy_j / one.energy_j
    pace = f"is {slower:.2g} times slower" if slower > 2 else f"takes {100 * (slower - 1):.2g} % more time"
    more = "more" if energy > 1 else "less"
    assert page.text("#comparison") == f"L4 {pace} than A30 and takes {100 * abs(energy - 1):.2g} % {more} energy."
    for said in ("never measured", "measure one network on it"):
        assert said in page.text(".card:nth-child(2)")
        assert said not in page.text(".card:nth-child(1)")
    assert page.complaints() == []


def test_a_model_and_two_gpus_are_chosen(page, service):
    page.open()
    loaded = page.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert loaded
    assert all(url.startswith(service.url) for url in loaded)
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


def test_training_is_drawn_by_phase_and_an_optimizer_steps_in_training_only(page):
    about = "resnet18", (8, 3, 224, 224), "A30"
    page.open("#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30&mode=training&optimizer=adamw")
    assert page.find("#optimizer-field").is_displayed()
    prediction = joulecast.predict(*about, mode="training", optimizer="adamw")
    assert page.texts(".value")[2] == si(prediction.energy_j, "J")
    assert 'mode="training", execution' not in page.text("#calls")
    assert 'optimizer="adamw"' in page.text("#calls")
    tree = prediction.tree()
    labels = [
        e.get_attribute("aria-label") for e in page.driver.find_elements("css selector", "#modules [aria-level='2']")
    ]
    for phase in tree.root.children:
        assert any(f"{share_text(tree, phase)}, {si(phase.total.energy_j, 'J')}" in label for label in labels)
    page.js("document.querySelector('[name=mode][value=inference]').click()")
    page.wait()
    assert not page.find("#optimizer-field").is_displayed()
    page.until(lambda: page.texts(".value")[2] == si(joulecast.predict(*about).energy_j, "J"))
    assert page.complaints() == []


def test_invalid_questions_are_reported_without_a_request(page):
    page.open("#model=bert_base&shape=8+x+128&gpus=A30")
    for field, typed, title in [
        ("#shape", "32 x three", "this is not an input shape"),
        ("#shape", "0 x 128", "this is not an input shape"),
        ("#shape", "[8,", "the input shape is no JSON"),
        ("#cache", "many", "this is no number of tokens"),
        ("#deadline", "soon", "this is no deadline"),
        ("#budget", "-5", "this is no power budget"),
        ("#cap", "0", "this is no power cap"),
        ("#batches", "1, many", "these are no batch sizes"),
        ("#model", "", "no model is named"),
    ]:
        before = page.find(field).get_attribute("value")
        page.choose(field, typed)
        assert page.text("#problem").startswith(title)
        assert "answer to the question before" in page.text("#problem")
        # The field says so itself, and has the keyboard.
        assert page.js("return [...document.querySelectorAll('[aria-invalid]')].map((each) => '#' + each.id)") == [
            field
        ]
        assert page.js("return '#' + document.activeElement.id") == field
        assert page.js("return document.getElementById('answers').className") == "stale"
        page.js("document.querySelector(arguments[0]).value = arguments[1]", field, before)
    page.choose("#cap", "")
    assert page.js("return document.getElementById('answers').className") == ""
    assert not page.find("#problem").is_displayed()
    assert page.js("return document.querySelectorAll('[aria-invalid]').length") == 0
    assert page.complaints() == []


def test_a_phone_shows_the_answer_before_the_form(page):
    page.open("#model=resnet18&shape=1+x+3+x+64+x+64&gpus=A30")
    first = "return document.querySelector('.frame').firstElementChild.id"
    assert page.js(first) == "question"
    try:
        page.resize(390, 844)
        page.until(lambda: page.js(first) == "results")
        page.find("#ask").click()
        page.until(lambda: page.js("return document.getElementById('question').getBoundingClientRect().top") < 100)
        assert page.js("return document.activeElement.name") == "subject"
        page.resize(1280, 900)
        page.until(lambda: page.js(first) == "question")
        # Nothing of the form is hidden.
        assert page.js("const f = document.querySelector('.fields'); return f.scrollHeight - f.clientHeight") <= 0
    finally:
        page.resize(None)


def test_the_address_keeps_the_view(page):
    page.open("#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30,T4&objective=cost&price=2.5&host=h100-server")
    best = joulecast.best("resnet18", (8, 3, 224, 224), objective="cost", price_per_hour=2.5, host="h100-server")[0]
    assert f"{float(f'{1e6 * best.value:.3g}'):g}" in page.text("#best tbody tr").split()
    page.choose(".card:nth-child(2) select", "optimum")
    shown = page.texts(".value")
    address = page.js("return location.hash")
    page.open(address)
    assert page.texts(".value") == shown
    assert page.find("#host").get_attribute("value") == "h100-server"
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


VIEWS = {
    "model": "#model=resnet18&shape=8+x+3+x+224+x+224&gpus=A30,L4&cap=60",
    "generation": "#view=generation&llm=llama3_1_8b&prompt=300&output=200&batch=16&gpus=H100+SXM,L40S&pace=40",
    "traffic": "#view=traffic&llm=qwen3_0_6b&rate=3&seconds=20&gpus=H100+SXM,L4",
    "images": "#view=images&pipeline=wan_2_1_1_3b&gpus=H100+SXM,L40S",
    "operations": "#view=operations&gpus=A30",
    "runs": "#view=runs&together=8&gpus=A30,H100+SXM&objective=cost",
    "docs": "docs",
    "scoreboard": "scoreboard",
}


TOP = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
BOTTOM = TOP.replace(".top", ".bottom")
NAMED = "const named = (e) => e.id || e.getAttribute('aria-label') || e.textContent || e.value || e.tagName;"
# Of a group of radio buttons Tab reaches the chosen one; arrow keys choose another.
CONTROLS = f"""{NAMED}
const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")];
return all.filter((e) => e.checkVisibility() && (e.type !== "radio" || e.checked)).map(named)"""
FOCUSED = f"""{NAMED}
const e = document.activeElement, box = e.querySelector("rect"), drawn = e.type === "radio" ? e.nextElementSibling : e;
const ring = box ? getComputedStyle(box).strokeWidth === "3px" : getComputedStyle(drawn).outlineStyle !== "none";
return [e === document.body ? "BODY" : named(e), ring]"""


@pytest.mark.parametrize("view", VIEWS)
def test_fits_every_width_and_is_accessible(page, view):
    page.open(VIEWS[view])
    try:
        if view not in ("docs", "scoreboard"):  # On a small screen the button is there, and hides no field.
            page.resize(1280, 900)
            assert page.js(BOTTOM, "#more summary") <= page.js(TOP, "#question > .primary")
            page.resize(1366, 768)
            for top in (0, 2000):
                page.js("scrollTo(0, arguments[0])", top)
                assert 0 < page.js(TOP, ".primary") < page.js(BOTTOM, ".primary") <= 768
        if view == "operations":  # The modules are drawn anew, not stretched.
            page.resize(1920)
            drawn = "const e = arguments[0]; return e.clientWidth === e.firstChild.viewBox.baseVal.width"
            page.until(lambda: page.js(drawn, page.find("#modules")))
        page.js("document.querySelectorAll('details').forEach((each, i) => { each.open = i < 9; })")
        for width, scheme in ((1920, "dark"), (1366, "light"), (768, "light"), (360, "dark")):
            page.resize(width, scheme=scheme)
            page.until(lambda width=width: page.js("return document.documentElement.scrollWidth") <= width)
            if AXE.is_file():  # npm pack axe-core, and its axe.min.js at build/axe.min.js
                assert page.faults() == []
    finally:
        page.resize(None)


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_is_reached_by_the_keyboard_and_shows_that_it_is(page, view):
    page.open(VIEWS[view])
    page.complaints()
    controls = page.js(CONTROLS)
    reached = []
    while len(reached) <= len(controls):
        page.press("\ue004")  # tab
        control, ring = page.js(FOCUSED)
        if control == "BODY":  # The end of the page.
            break
        reached.append(control)
        assert ring, control
    assert reached == controls
    assert page.complaints() == []
