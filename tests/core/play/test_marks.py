"""What is taken off a reply before anybody reads it, and what stays because somebody writes about it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Protocol, Role
from core.play.marks import without_marks
from core.play.reading import read_reply

PIECES = (
    *(
        "<think>", "</think>", "<thinking>", "</reasoning>", "<|im_end|>", "<|im_start|>user\n", "</s>", "<s>",
        "\ufeff",
    ),
    *(
        "<|channel|>final<|message|>", "<|start|>assistant", "<|end|>", "[INST]", "[/INST]", "```\n", "`", '"',
        "\n", "so 12 ",
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<think>hm</think>so 12', 'so 12'), (' <think>\nhm</think>\n\nso 12', 'so 12'),
        ('hm</think>so 12', 'so 12'), ('<think>never closed', ''), ('so 12', 'so 12'),
        ('so <think>x</think> 12', 'so 12'), ('', ''), ('<thinking>a <answer>1</answer></thinking> 42', '42'),
        ('<THINK>a</THINK>\nb', 'b'), ('<think>a</think>\nb\n<think>c</think>\nd', 'b\nd'),
        ('<think>a <think>b</think> c</think> d', 'd'), ('[THINK]x[/THINK]42', '42'),
        ('<|begin_of_thought|>x<|end_of_thought|>\n<|begin_of_solution|>42<|end_of_solution|>', '42'),
        (
            '<|channel|>analysis<|message|>Perhaps <answer>41</answer>? No.<'
            '|end|><|start|>assistant<|channel|>final<|message|>42<|return|>',
            '42',
        ),
        ('analysisWe add.assistantfinal42', '42'),
        ('We add<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>', '42'),
        ('<|channel|>analysis<|message|>cut', ''),
        (
            '<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel'
            '|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>',
            '',
        ),
        ('42</s>', '42'), ('42\ufeff', '42'), ('\ufeff42', '42'), ('<s> 42</s>', '42'),
        ('<s>old</s> new <s>x</s>', '<s>old</s> new <s>x</s>'),
        ('42<|im_end|>\n<|im_start|>user\nnext<|im_end|>', '42'), ('<|im_start|>assistant\n42<|im_end|>', '42'),
        ('<|im_start|>verifier\nX<|im_end|>', ''),
        ('<|start_header_id|>assistant<|end_header_id|>\n\n42<|eot_id|>', '42'),
        ('<start_of_turn>model\n42<end_of_turn>\n<eos>', '42'),
        ('42<\uff5cend\u2581of\u2581sentence\uff5c>', '42'), ('[INST] q [/INST] 42</s>', '42'),
        ('42 [/INST]', '42'),
        (
            '```python\nprint(\'</think>\')\nprint("<|im_end|>")\n```',
            '```python\nprint(\'</think>\')\nprint("<|im_end|>")\n```',
        ),
        ('```\n<think>\nx\n</think>\n```', '```\n<think>\nx\n</think>\n```'), ('hm\n```\ncode </think>\n', ''),
        ('hm\n```\ncode\n</think>\n```python\na\n```', '```python\na\n```'),
        ('Use the `<think>` tag and `</think>`.', 'Use the `<think>` tag and `</think>`.'),
        ('Use the <think> tag.', 'Use the <think> tag.'),
        ('s = t.split("</think>")[1]', 's = t.split("</think>")[1]'),
        ('42 <think>wait <answer>41</answer>', '42'), ('a<|end|>b', 'a b'),
        ('\u25c1think\u25b7x\u25c1/think\u25b742', '42'), ('<think></think>\n\n42', '42'),
        ('hm</think>a</think>b', 'b'), ('x</think>', ''), ('<answer>4</answer></think>', ''),
        ('<think>a```python\nx\n</think>\n```python\ny\n```', '```python\ny\n```'), ('|a|<|b|>c', '|a|<|b|>c'),
        ('x<y and <s>', 'x<y and <s>'), ('if x < 3: [1]', 'if x < 3: [1]'),
        ('<reasoning>r</reasoning><answer>4</answer>', '<answer>4</answer>'),
        ('<|channel>thought\nhm<channel|>42<turn|>', '42'),
        ('```python\nprint(1)\n```<|im_end|>', '```python\nprint(1)\n```'),
        ("```python\nprint('x')<|endoftext|>", "```python\nprint('x')"),
        ('```\n<|channel|>final<|message|>\n```\nThat is it.', '```\n<|channel|>final<|message|>\n```\nThat is it.'),
        ('<think>a</think>b<think>c</think>d', 'b d'),
        ('The sum is 12.\n<reflection>Is it? Yes.</reflection>\nSo 12.', 'The sum is 12.\nSo 12.'),
        ('<think>Tag <answer>1</answer> <think> is odd</think> 42', '42'),
        ('42<|end|>\n<|start|>user<|message|>next', '42'), ('<|begin_of_box|>42<|end_of_box|>', '42'),
        ('<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>42<|END_RESPONSE|>', '42'),
        ('<s>[INST] q [/INST] 42 </s>', '42'), ('[EOS]42[EOS]', '42'), ('\u200b42\u200b', '42'),
        (
            'Llama ends with `<|eot_id|>`, ChatML with "<|im_end|>".',
            'Llama ends with `<|eot_id|>`, ChatML with "<|im_end|>".',
        ),
        ('a < b and c > d [x]', 'a < b and c > d [x]'),
    ],
)  # fmt: skip
def test_what_is_left_of_a_reply(text: str, said: str) -> None:
    assert without_marks(text).strip() == said.strip()


@given(st.lists(st.sampled_from(PIECES), max_size=9))
def test_a_text_without_marks_stays_as_it_is(pieces: list[str]) -> None:
    plain = "".join(one for one in pieces if one in ("\n", "so 12 ", '"', "`", "```\n"))
    assert without_marks(plain) == plain


@given(st.lists(st.sampled_from(PIECES), max_size=9))
def test_nothing_new_is_said_and_no_text_is_a_fault(pieces: list[str]) -> None:
    text = "".join(pieces)
    said = without_marks(text)
    assert said.count("12") <= text.count("12")


@pytest.mark.parametrize(
    "text",
    [
        *("<think>x</think>\n" * 6000, "a <think> " * 9000, " " * 100_000 + "x", "```a\n" * 20_000),
        "<|im_end|> x" * 8000,
        *("`<think>` " * 9000, "<s>" * 30_000, "```\n<think>\n```\n" * 3000, "[INST]" * 20_000),
        ("<" + " " * 300) * 300,
        *(f"<|{mark}|>{' ' * 90_000}x" for mark in ("start", "channel", "start_header_id", "im_start")),
        *(f"{mark}{' ' * 90_000}x" for mark in ("<s>", "[INST]", "<think>", "</think>", "```", " ", "<|im_end|>")),
        "".join("`" * (3 + n % 300) + "\n" for n in range(3000)),
    ],
    ids=range(22),
)  # fmt: skip
def test_a_hostile_text_takes_no_long_time(text: str) -> None:
    begun = time.process_time()
    without_marks(text)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<thinking>a <answer>1</answer></thinking> 42", "42"),
        ("<thinking>a <answer>1</answer></thinking> <answer>42</answer>", "42"),
        ("<answer>42</answer>\n<think>or <answer>41</answer>?</think>", "42"),
        ("<answer>42<|im_end|></answer>", "42"),
        ("<answer>42<|im_end|>", "42"),
        ("The answer is 42.</s>", "42"),
        ("<think>The answer is 1.</think>", None),
        ("<|channel|>analysis<|message|><answer>41</answer><|end|>", None),
        ("42<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n43", "42"),
    ],
)
def test_no_answer_is_read_from_what_is_not_said(reply: str, answer: str | None) -> None:
    assert read_reply(Protocol.PAPER, "general", Role.WORKER, reply, grader="number").answer == answer


def test_a_plan_is_read_without_thinking_and_marks() -> None:
    text = "<think><suggestion>no</suggestion></think><suggestion>Add the tens.</suggestion><|im_end|>"
    found = read_reply(Protocol.PAPER, "general", Role.THINKER, text)
    assert found.suggestion == "Add the tens."
    assert not read_reply(
        Protocol.PAPER, "general", Role.THINKER, text.partition("</think>")[0] + "</think>"
    ).suggestion
    assert (
        read_reply(Protocol.PAPER, "terse", Role.THINKER, "<think>x</think>add<|im_end|>").suggestion == "add"
    )
