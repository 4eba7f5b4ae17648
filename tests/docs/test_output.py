"""Comparing what a page shows with what is printed."""

from pathlib import Path

from tests.docs.blocks import blocks
from tests.docs.output import missing_lines

_PRINTED = """'demo', 4,000 vertices
compiling kernels: once, the cache keeps it
1 graph server, 401 MB of memory; 16 threads
accuracy: test 94.30 %; best epoch 41 of 200, 5.3 s, 12.1 ms an epoch
saved in runs/demo-gcn-20261118-045757
"""


def test_lines_may_differ_in_what_the_machine_decides() -> None:
    shown = "1 graph server, 382 MB of memory; 2 threads\naccuracy: test 94.94 %; best epoch 35 of 200, 1.7 s, 5.0 ms an epoch\n"
    assert missing_lines(shown + "saved in runs/demo-gcn-20261115-211018", _PRINTED) == []
    assert missing_lines("saved in …", _PRINTED) == []
    assert (
        missing_lines("accuracy: test 94.94 %; best epoch 35 of 200, 2.3 min, 1.0 s an epoch", _PRINTED) == []
    )


def test_other_numbers_words_and_orders_are_told() -> None:
    assert missing_lines("'demo', 4,001 vertices", _PRINTED) == ["'demo', 4,001 vertices"]
    assert missing_lines("accuracy: test 84.30 %; best epoch 41 of 200, …", _PRINTED)
    assert missing_lines("saved in …\n'demo', 4,000 vertices", _PRINTED) == ["'demo', 4,000 vertices"]


def test_a_page_says_which_output_is_compared(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "<!-- compared -->\n```console\n$ siafu datasets\ndemo\n```\n\n```console\n$ siafu doctor\n```\n"
    )
    first, second = blocks(tmp_path / "page.md")
    assert (first.compared, second.compared) == (True, False)


def test_the_quick_start_has_output_that_is_compared() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "quickstart.md"
    assert sum(block.compared for block in blocks(page)) >= 3
