"""Rendered replies: Markdown and formulas are kept, and whatever could act on the page is text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.hostile import HOSTILE
from ui.presentation.rendered import rendered, safe_formula
from ui.presentation.theme import WORD_JOINER, label, plain

#: What Streamlit looks for in text, and what no text of ours may hold.
ACTIVE = re.compile(
    r":material_\w+:|:streamlit:|:[\w+-]+:|://|www\.|@(?!\u2060)|[\u202a-\u202e\u2066-\u2069\u200b\u00ad\x00]",
    re.IGNORECASE,
)
#: Pieces of which hostile replies are made.
_PIECES = r"""
    $ $$ \( \) \[ \] \ ` `` ``` ~~~ | |-|-| * ** _ ~~ [ ]( ) ![ < > <b> &#36; &#x202e; :red[x] % { } : :: ! =
    :material/verified: :material_verified: :streamlit: :+1: https://a.invalid www.a.invalid a@b.invalid
    [x](https://a.invalid) x 5 ACCEPT \frac{a}{b} \href{//a}{b} \rule{9em}{9em} \\[9em]
"""
_BLANKS = ("\n", "\n\n", "    ", "\t", "\xa0", "\u202e", "\u200b", "\x00", "- ", "> ", "1. ", "# ")
PIECES = [*_PIECES.split(), *_BLANKS, "[p]: //a.invalid"]


def _peer() -> MarkdownIt:
    """A parser that does all that ours does not: links, images, HTML, entities, definitions."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def _texts(markdown: str) -> list[str]:
    """The texts that Streamlit would look through, by a parser of its kind; no link, image or HTML among them."""
    texts = []
    for outer in _peer().parse(markdown):
        assert outer.type != "html_block"
        for token in outer.children or ():
            assert token.type not in ("link_open", "image", "html_inline")
            if token.type == "text":
                texts.append(token.content)
    return texts


def _without_formulas(markdown: str) -> str:
    """Formulas are no text: the page hands them to KaTeX. Dollar signs stand nowhere else but in code."""
    return re.sub(r"\$\$[^$]*(?:\\\$[^$]*)*\$\$|\$[^$]+\$", "x", markdown)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_hostile_text_can_act(text: str) -> None:
    markdown = rendered(text)
    if markdown is not None:
        for found in _texts(_without_formulas(markdown)):
            assert not ACTIVE.search(found)
            assert not re.search(r"(?<!\S)(?:<->|->|<-|--|>=|<=|~=)(?!\S)", found)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_nothing_of_any_mixture_can_act_whether_or_not_the_page_draws_formulas(text: str) -> None:
    markdown = rendered(text)
    if markdown is None:
        return
    _texts(markdown)  # as if formulas were ordinary text: a page that sees no formula draws none
    code_removed = re.sub(
        r"^( *(?:[->]|\d+\.)? *)*(`{3,})[\s\S]*?\n[> ]*\2$", "", markdown, flags=re.MULTILINE
    )
    bare = re.sub(r"`[^`\n]*`", "", code_removed)
    assert not re.search(r"(?<!\\)(?::[a-zA-Z]|\]\(|<[a-zA-Z/!?])", bare)


@given(st.text(max_size=200))
def test_any_text_is_rendered_without_an_error(text: str) -> None:
    assert (
        rendered(text) is not None
        or text.count(">") + text.count("-") + text.count("*") + text.count("_") > 12
    )


@given(
    st.text(
        alphabet=st.characters(categories=["L", "N"]) | st.sampled_from(" .,;!?:()'\"-=@/<>&"), max_size=80
    )
)
def test_plain_words_keep_every_character(text: str) -> None:
    line = " ".join(f"a{text}".split())
    shown = "".join(_texts(rendered(line) or "")).replace(WORD_JOINER, "")
    assert shown == plain(line).replace(WORD_JOINER, "")


def test_markdown_keeps_its_form() -> None:
    reply = (
        "## Plan\nFirst **add**, then *check* `2+2`.\n\n1. one\n   - inner\n2. two\n\n> quoted\n\n"
        "| a | b |\n|:--|--:|\n| 1 | 2 |\n\n```python\nx = ':red[1]'\n```\n"
    )
    assert rendered(reply) == (
        "**Plan**\n\nFirst **add**\\, then *check* `2+2`\\.\n\n1. one\n   - inner\n2. two\n\n> quoted\n\n"
        "| a | b |\n| :-- | --: |\n| 1 | 2 |\n\n```python\nx = ':red[1]'\n```"
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (r"So \(x^2\) holds.", r"So $x^2$ holds\."),
        ("So $x^2$ holds", "So $x^2$ holds"),
        ("the $n$th of $k$", "the $n$th of $k$"),
        ("so $$x+1$$ holds", "so $x+1$ holds"),
        ("\\[\na\n= b\n\\]", "$$\na = b\n$$"),
        ("text\n$$\n- a\n$$", "text\n\n$$\n- a\n$$"),
        ("$$a \\\\[9em] b$$.", "$$\na \\\\ b.\n$$"),
        (r"$\frac{1}{2} \text{ of } 5$", r"$\frac{1}{2} \text{ of } 5$"),
        (r"it costs $\$5$ today", r"it costs $$\$5$$ today"),
        ("$50%$", r"$50\%$"),
        ("$a$ $b$", "$a$ $b$"),
    ],
)
def test_formulas_are_rendered(said: str, shown: str) -> None:
    assert rendered(said) == shown


@pytest.mark.parametrize(
    "said",
    [
        "It costs $5 and $6.",
        "between $5-$10",
        "You pay $5, I pay 6$.",
        "US$5 is A$7",
        "$HOME/$PATH",
        "he has $20 million and she 30$ more",
        "a $5 bill or five$1 bills",
        r"it is \$5 and \$6",
        "$1,000 to $2,000",
        "$5",
    ],
)
def test_amounts_of_money_are_no_formulas(said: str) -> None:
    assert "$" not in (rendered(said) or "$")


@pytest.mark.parametrize(
    "source",
    [
        r"\rule{9999em}{9999em}",
        r"\color{green}{\text{ACCEPT}}",
        r"\href{https://a.invalid}{x}",
        r"\htmlStyle{position:fixed}{x}",
        r"\includegraphics{a.png}",
        r"\def\a{\a\a}\a",
        r"\hspace{-90em} x",
        r"\raisebox{9em}{x}",
        r"\Huge x",
        r"\begin{document}x\end{document}",
        r"\begin {document}x\end {document}",
        "{" * 300 + "x" + "}" * 300,
        "}{",
        "x" * 2_000,
        "a\\\\" * 100,
        "x\\",
        "a $ b",
        "",
    ],
)
def test_a_formula_that_is_unsafe_or_too_large_is_shown_as_its_source(source: str) -> None:
    assert safe_formula(source) is None
    if "$" not in source and source.strip():
        assert (rendered(f"$${source}$$") or "").startswith(
            ("`", "&#36;", "$$" if source.endswith("\\") else "`")
        )


def test_links_and_images_are_text_with_their_address() -> None:
    shown = (rendered("[here](https://a.invalid/b) ![p](https://c.invalid)") or "").replace("\\", "")
    assert (
        shown.replace(WORD_JOINER, "") == "here (https://a.invalid/b) (image, not shown: p https://c.invalid)"
    )


def test_what_is_nested_too_deeply_is_not_rendered() -> None:
    assert rendered("> " * 300 + "deep") is None
    assert rendered("- " * 300 + "deep") is None
    assert rendered("> > > - deep") == "> > > - deep"


def test_labels_break_icons_and_emoji_that_escaping_alone_would_leave() -> None:
    for text in (":material_verified:", ":streamlit:", ":+1:", "a -> b"):
        assert WORD_JOINER in label(text)
    assert WORD_JOINER not in label("single:jack at 10:30, -5 - 3")
