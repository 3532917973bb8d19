"""What the report of a run tells of its written prompts."""

from tests.support.writing_runs import PARENT, begin, play, write_project


def test_the_report_tells_the_family_and_the_winner_is_a_file(tmp_path):
    formats = {"formats": ["json", "markdown", "html"], "visualizations": []}
    write_project(tmp_path, None, output=formats)
    result = play(begin(tmp_path))
    report = result.prompts
    assert report is not None
    assert report.family[0].parent == PARENT
    assert report.family[-1].text == result.found.params["system"]
    for one, two in zip(report.family, report.family[1:], strict=False):
        assert one.text_id == two.parent_id
    folder = tmp_path / "results" / result.label
    text = (folder / "report.md").read_text()
    assert "How the prompt was written" in text
    assert "Overfitting" in text
    assert "Fixed rules have written these texts" in text
    assert "How the prompt was written" in (folder / "report.html").read_text()
    if result.winner.params["system"] != PARENT:
        assert (folder / "prompts/system.txt").read_text() == result.winner.params["system"]
        assert (folder / "prompts/system.given.txt").read_text() == PARENT
