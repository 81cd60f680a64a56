"""Constrained lists: whatever can be written can be read, and what was written can be written again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from core.conduct.planners import legal_workflow
from core.conduct.prompts import WORDS
from core.conduct.reading import read_workflow, write_workflow
from core.errors import CheckpointError
from core.planner.forms import SHORT_LISTS, WHOLE_LISTS, Grammar, ListForm, Place, write_short
from core.planner.planner import Pieces
from core.workflow import AccessMode, Workflow
from tests.core.planner.tiny import tokenizer

CASES = [(SHORT_LISTS, AccessMode.CHOOSE_POSITION), *((WHOLE_LISTS, mode) for mode in AccessMode)]


def walk(grammar: Grammar, rng: random.Random) -> str:
    """A random walk to the end, option by option; a free subtask is a few signs."""
    place, text = Place(), ""
    while place.part != "done":
        if place.part == "text":
            piece = "".join(rng.choice("ab [](),:=' é#") for _ in range(rng.randint(0, 6))) + 'x"'
        else:
            piece = rng.choice(sorted(grammar.options(place)))
        moved = grammar.advance(place, piece)
        assert moved is not None
        place, text = moved, text + piece
    return text


@pytest.mark.parametrize(("form", "mode"), CASES)
def test_every_walk_is_a_workflow_of_allowed_models_and_of_no_more_steps(
    form: ListForm, mode: AccessMode
) -> None:
    rng = random.Random(0)
    lengths = set()
    for number in range(300):
        allowed, most = [(0, 1, 2), (1,), (0, 10, 3)][number % 3], 1 + number % 5
        text = walk(Grammar(form, mode, allowed, most), rng)
        read = read_workflow(text, allowed=allowed, mode=mode)
        assert isinstance(read, Workflow), (text, read)
        assert len(read) <= most
        lengths.add(len(read))
    assert lengths >= {1, 2, 3, 4}


@given(st.integers(0, 10**9))
@settings(deadline=None)
def test_legal_workflows_can_be_written_sign_by_sign_and_read_back(number: int) -> None:
    workflow = legal_workflow(str(number), (0, 2, 5, 11), (*WORDS,))
    for form, text in ((SHORT_LISTS, write_short(workflow)), (WHOLE_LISTS, write_workflow(workflow))):
        grammar, place = Grammar(form, AccessMode.CHOOSE_POSITION, (0, 2, 5, 11), 5), Place()
        for sign in text:
            signs = grammar.next_signs(place)
            assert signs is None or sign in signs
            moved = grammar.advance(place, sign)
            assert moved is not None, (text, place)
            place = moved
        assert place.part == "done"
        assert read_workflow(text, allowed=(0, 2, 5, 11), mode=AccessMode.CHOOSE_POSITION) == workflow


@pytest.mark.parametrize(
    "text",
    [
        "subtasks=[solve]\naccess=[[]]\nmodel_id=[3",  # not allowed
        "subtasks=[]",
        "subtasks=[solve,solve,solve,solve,solve,solve",  # six steps
        "subtasks=[think",
        "subtasks=[solve]\naccess=[[0]",
        "subtasks=[solve,merge]\naccess=[[],[]]",  # nobody reads the first
        "subtasks=[solve]\naccess=[[]]\nmodel_id=[0,1",  # a model too many
        "subtasks=[solve,solve]\naccess=[[],[0]]\nmodel_id=[0]",  # one too few
        "subtasks=[solve]\naccess=[[]]\nmodel_id=[0] ",
        "Here you are",
    ],
)
def test_what_is_no_beginning_of_lists_cannot_be_written(text: str) -> None:
    assert Grammar(SHORT_LISTS, AccessMode.CHOOSE_POSITION, (0, 1, 2), 5).advance(Place(), text) is None


def metaspace() -> PreTrainedTokenizerFast:
    """A tokenizer of another kind: blanks are part of a word's piece, and are dropped at the beginning of a text."""
    signs = [chr(sign) for sign in range(33, 127)]
    vocabulary = ["</s>", "▁", *signs, "\n", "▁=", "▁[", "]\n", ",▁", "▁solve", "model", "sub", "tasks"]
    core = Tokenizer(models.BPE({piece: place for place, piece in enumerate(vocabulary)}, []))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["bytes", "blanks"])
@pytest.mark.parametrize(("form", "mode"), CASES[:2])
def test_random_tokens_of_any_vocabulary_become_lists(kind: str, form: ListForm, mode: AccessMode) -> None:
    words = tokenizer() if kind == "bytes" else metaspace()
    pieces, rng, ended = Pieces(words, len(words)), random.Random(1), 0
    for _ in range(15):
        grammar, place, ids = Grammar(form, mode, (0, 2), 3), Place(), list[int]()
        for _ in range(400):
            if place.part == "done":
                assert pieces.bias(grammar, place).argmax() == words.eos_token_id
                break
            moves = pieces.moves(grammar, place)
            assert (pieces.bias(grammar, place) == 0).nonzero().flatten().tolist() == sorted(moves)
            closing = [token for token, to in moves.items() if to.part != place.part]
            ids.append(rng.choice(closing if closing and rng.random() < 0.2 else [*moves]))
            place = moves[ids[-1]]
        if place.part == "done":
            ended += 1
            text = str(words.decode(ids, skip_special_tokens=True))
            assert isinstance(read_workflow(text, allowed=(0, 2), mode=mode), Workflow), text
    assert ended > 7


def test_a_vocabulary_that_cannot_write_lists_is_refused() -> None:
    core = Tokenizer(models.WordLevel({"</s>": 0, "[": 1, "hello": 2}, unk_token="</s>"))
    words = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")  # type: ignore[no-untyped-call]
    grammar = Grammar(SHORT_LISTS, AccessMode.CHOOSE_POSITION, (0,), 1)
    with pytest.raises(CheckpointError, match="no token with which its lists could go on"):
        Pieces(words, 3).bias(grammar, Place())
