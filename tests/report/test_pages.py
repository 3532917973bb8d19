"""What the report says, in Markdown and HTML."""

import json
import re
import shutil
import subprocess
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from convergence_core.explanation.records import Explanation
from convergence_core.records import Params
from convergence_core.result import CandidateReport, CaseAnswer, CaseAnswers, RunResult, verdict_of
from tasks.report.answers_section import answer_blocks
from tasks.report.markdown import markdown_of, report_markdown
from tasks.report.page import block_html, report_html
from tasks.report.phrases import neighbour_sentence, previews
from tests.support.results import bare_result, failed_result, made_up_result

NASTY = '<script>alert("x")</script> & `code` | $a_b$ \ud800 \x00 **bold** [x](y)'


class Reader(HTMLParser):
    """Collects the tags, their attributes and the visible text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def nasty_explanation(result: RunResult) -> Explanation:
    found = result.explanation
    assert found is not None
    assert found.surface is not None
    assert found.discards is not None
    pairs = tuple(
        replace(pair, parameters=(NASTY, NASTY), labels=(NASTY, NASTY))
        for pair in found.surface.interactions
    )
    return replace(
        found,
        surface=replace(found.surface, interactions=pairs),
        discards=replace(
            found.discards,
            closest=tuple(replace(one, label=NASTY) for one in found.discards.closest),
        ),
    )


def nasty_result() -> RunResult:
    result = made_up_result()
    params: Params = {NASTY: NASTY, "prompt": NASTY * 5 + "\n```\nsecond line"}
    assert result.winner is not None
    return replace(
        result,
        system=NASTY,
        reason=NASTY,
        facts={NASTY: NASTY},
        winner=replace(result.winner, params=params, label=NASTY),
        winner_reason=NASTY,
        leaderboard=tuple(replace(row, label=NASTY, origin=NASTY) for row in result.leaderboard),
        effects=tuple(
            replace(
                effect,
                parameter=NASTY,
                points=tuple(replace(point, label=NASTY) for point in effect.points),
            )
            for effect in result.effects
        ),
        explanation=nasty_explanation(result),
        failures=tuple(replace(f, reason=NASTY, example=NASTY) for f in result.failures),
    )


@pytest.fixture(
    scope="module",
    params=[made_up_result, bare_result, failed_result, nasty_result],
    ids=lambda make: make.__name__,
)
def pages(request) -> tuple[str, str]:
    result = request.param()
    return report_html(result), report_markdown(result)


@pytest.mark.parametrize("make", [made_up_result, bare_result, nasty_result])
def test_no_page_claims_that_anything_is_better_but_by_the_verdict(make):
    result = make()
    said = verdict_of(result)
    for page in (read(report_html(result)).text, report_markdown(result)):
        rest = page
        for text in (said.sentence, said.next_step):
            assert text.replace("`", "") in page.replace("`", "")
            rest = rest.replace(text, "").replace(text.replace("`", ""), "")
        assert not re.search(r"\bbetter\b|\bbest\b|\bworse\b|\bimproved?\b", rest, re.IGNORECASE)


def test_the_page_asks_nothing_of_the_network(pages):
    page, _ = pages
    reader = read(page)
    assert not {"link", "img", "iframe", "object", "use href"} & set(reader.tags)
    references = [v for n, v in reader.attributes if n in {"src", "href", "xlink:href", "action"}]
    assert all(value is not None and value.startswith("#") for value in references)
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    assert "http://" not in page
    assert "https://" not in page


def test_ids_on_the_page_are_unique_and_every_reference_has_its_target(pages):
    reader = read(pages[0])
    assert len(reader.ids) == len(set(reader.ids))
    used = re.findall(r'(?:url\(#|href="#)([\w-]+)', pages[0])
    assert set(used) <= set(reader.ids)


def test_text_of_others_is_never_markup():
    page, text = report_html(nasty_result()), report_markdown(nasty_result())
    assert page.count("<script") == 1, "ours"
    assert "<script>alert" in read(page).text
    outside_code = re.sub(r"^(`{3,})text\n.*?\n\1$|(`+)[^\n]*?\2", "", text, flags=re.M | re.S)
    assert "<script" not in outside_code
    assert "](y)" not in outside_code.replace("\\](y)", "")
    for page_or_text in (page, text):
        page_or_text.encode("utf-8")
        assert "\x00" not in page_or_text


def test_the_page_may_run_one_script_by_its_hash_and_nothing_else(pages):
    (script,) = re.findall(r"<script>(.*?)</script>", pages[0], re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', pages[0])
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")
    own = script[: script.index("/* Built from ui/src/report.ts")]
    assert "innerHTML" not in own
    assert not re.search(r"\beval\(|new Function", script)


def dom_of(page: str, folder: Path) -> str:
    """Return the page as it stands in a browser once its script has run."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    done = subprocess.run(
        [*command, f"--user-data-dir={folder / 'profile'}", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("make", [made_up_result, nasty_result])
def test_tables_can_be_sorted_and_filtered_in_a_browser(make, tmp_path: Path):
    page = report_html(make())
    dom = dom_of(page.replace("<details>", "<details open>"), tmp_path)
    assert dom.count('class="sort"') > 10
    assert 'placeholder="Filter rows"' in dom
    assert dom.count("Enlarge") >= 5
    assert dom.count("<canvas") == page.count("data-plot=") > 5
    assert "<script>alert" not in dom


@needs_chromium
@pytest.mark.slow
def test_a_plot_returns_below_its_caption_and_times_sort_by_length(tmp_path: Path):
    page = re.sub("<meta http-equiv[^>]+>", "", report_html(made_up_result()))
    rows = "".join(f"<tr><td>{t}</td></tr>" for t in ("2 min 7 s", "1 h 2 min", "-1", "59.0 s"))
    table = f"<table id=took><thead><tr><th>took</th></tr></thead><tbody>{rows}</tbody></table>"
    script = (
        "document.querySelector('figure:has(figcaption) .larger').click();"
        "document.querySelector('dialog.zoom').close();"
        "document.querySelector('#took .sort').click();"
    )
    page = page.replace("</main>", f"{table}</main>")
    dom = dom_of(page.replace("</body>", f"<script>{script}</script></body>"), tmp_path)
    parts = re.findall("<figcaption|data-plot=|Enlarge", dom)
    first = parts.index("<figcaption")
    assert parts[first : first + 3] == ["<figcaption", "data-plot=", "Enlarge"]
    took = re.findall("<td>([^<]+)</td>", dom[dom.index('id="took"') :])
    assert took == ["1 h 2 min", "2 min 7 s", "59.0 s", "-1"]


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        "<script>document.body.id = 'taken'</script>",
        "<img src=x onerror=\"document.body.id = 'taken'\">",
        "<svg onload=\"document.body.id = 'taken'\"></svg>",
        "<iframe srcdoc=\"<script>parent.document.body.id = 'taken'</script>\"></iframe>",
    ],
)
def test_what_slipped_through_would_not_run(attack: str, tmp_path: Path):
    page = report_html(bare_result())
    dom = dom_of(page.replace("</main>", f"{attack}</main>"), tmp_path)
    assert 'id="taken"' not in dom
    assert 'class="sort"' in dom


def test_marks_of_plots_have_tips_with_intervals():
    page = read(report_html(made_up_result()))
    plots = [json.loads(value or "") for name, value in page.attributes if name == "data-plot"]
    points = [point for plot in plots for layer in plot["layers"] for point in layer["points"]]
    tips = [point["tip"] for point in points if point["tip"]]
    assert len(tips) > 20
    assert any(re.match(r"generation 7: 0\.7\d+ \[.*\], recommended so far", tip) for tip in tips)
    assert "recommended, held-out cases (measured): 0.610 [0.570, 0.650]" in tips


def test_a_winner_that_is_the_default_is_compared_with_nothing():
    result = made_up_result()
    result = replace(result, baseline=result.winner, difference=None, difference_fresh=None)
    text = report_markdown(result)
    assert "No gain: the defaults are the best configuration found." in text
    assert "difference is" not in text
    report_html(result)


def test_long_texts_are_shown_whole_on_demand():
    prompt = "You are terse.\n" * 40
    result = made_up_result()
    assert isinstance(result.winner, CandidateReport)
    result = replace(result, winner=replace(result.winner, params={"system": prompt}))
    assert f"<pre>{prompt}</pre>" in report_html(result)
    assert f"```text\n{prompt}\n```" in report_markdown(result)


def test_previews_of_long_texts_show_where_they_differ():
    rule = "Sort the message into one of the four moods that you know: "
    texts = [rule + "use lower case.", rule + "use lower case. Explain nothing.", "Sort it."]
    assert previews(texts) == [rule + "…", "… Explain nothing.", "Sort it."]


def test_a_recording_is_a_link_on_the_page_and_an_address_elsewhere():
    url = "https://www.browserbase.com/sessions/s1"
    answer = CaseAnswer(text="yes", reward=1.0, recording_url=url)
    case = CaseAnswers(case_id="c", role="holdout", input="?", first=None, second=answer)
    blocks = answer_blocks([case], "default", "recommended")
    assert f"* recording of recommended: {url}" in markdown_of(blocks)
    page = read("".join(block_html(block) for block in blocks))
    assert ("href", url) in page.attributes
    assert ("rel", "noopener noreferrer") in page.attributes


def test_thinking_stands_beside_an_answer_and_is_no_part_of_it():
    answer = CaseAnswer(text="yes", reward=1.0, thinking=NASTY)
    case = CaseAnswers(case_id="c", role="holdout", input="?", first=None, second=answer)
    blocks = answer_blocks([case], "default", "recommended")
    assert "* thinking of recommended: " in markdown_of(blocks)
    page = read("".join(block_html(block) for block in blocks))
    assert "script" not in page.tags


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "http://x", 'https://x" onclick="y', NASTY]
)
def test_what_is_no_address_of_the_web_is_text(url: str):
    answer = CaseAnswer(text="yes", reward=1.0, recording_url=url)
    case = CaseAnswers(case_id="c", role="holdout", input="?", first=None, second=answer)
    blocks = answer_blocks([case], "default", "recommended")
    page = read("".join(block_html(block) for block in blocks))
    assert {name for name, _ in page.attributes} <= {"href", "rel", "class"}
    assert all(value == url for name, value in page.attributes if name == "href")
    assert "script" not in page.tags


def test_the_first_page_is_short_and_names_a_neighbour_that_costs_less_than_half():
    result = made_up_result()
    first, _, rest = report_markdown(result).partition("## Details")
    assert len(first.split()) <= 600
    assert "score on held-out cases" in first
    assert rest
    winner, other = result.leaderboard[:2]
    rows = (
        replace(winner, low=0.5, mean=0.6, metrics={"cost_usd": 0.03}),
        replace(other, mean=0.55, label="mini", metrics={"cost_usd": 0.001}),
    )
    assert neighbour_sentence(replace(result, leaderboard=rows)) == (
        "In the search mini scores 0.550, within the interval of the recommended configuration "
        "(0.600), at $0.0010 instead of $0.030 an answer."
    )


def test_a_neighbour_is_faster_only_if_the_final_test_says_so_too():
    result = made_up_result()
    assert result.best is not None
    winner, other = result.leaderboard[:2]
    rows = (
        replace(winner, low=0.5, mean=0.6, metrics={"latency_ms": 20.0}),
        replace(other, mean=0.55, label="mini", metrics={"latency_ms": 9.0}),
    )
    fast, slow = (replace(result.best, answer_ms=answer_ms) for answer_ms in (8.0, 20.0))
    assert neighbour_sentence(replace(result, winner=fast, leaderboard=rows)) is None
    assert "at 9 ms instead of 20 ms" in str(
        neighbour_sentence(replace(result, winner=slow, leaderboard=rows))
    )
