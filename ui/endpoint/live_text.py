"""An answer's text while its model writes it: as much of it as can be sent before the reply is whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.episode import Message
from core.play.chat import MOST_REPEATED, NOTE, joined, shown_of, without_echo

_SENTENCE_END = re.compile(r"[.!?:)]\s|\n")


@dataclass
class LiveText:
    """The text of one reply, that of turn `turn`. What was `sent` is a beginning of the answer, but where a reply is
    changed afterwards: `rest` then says what is left to send. `stops`: texts before which the answer ends; `messages`:
    what the model was sent, of which it may repeat the notes, and of a workflow's step its `subtask`; `begun`: what the
    replies before it wrote, where these broke off and it goes on. `is_lost`: another text takes its place."""

    turn: int = 0
    stops: Sequence[str] = ()
    messages: Sequence[Message] = ()
    subtask: str = ""
    begun: str = ""
    raw: str = ""
    sent: str = ""
    is_lost: bool = False

    def feed(self, piece: str) -> str:
        """Take more of the reply; what can be sent now, which may be nothing."""
        self.raw += piece
        if self.is_lost:
            return ""
        text = self.so_far
        ends = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        held = max((len(stop) for stop in self.stops), default=1) - 1
        text = text[: min(ends)] if ends else text[: len(text) - held]
        if self.has_notes:
            whole = [*_SENTENCE_END.finditer(text)]
            text = text[: whole[-1].end()] if whole else ""
            new = text[len(self.sent) :]  # what is sent already was looked through before
            if without_echo(new, (), self.subtask).strip() != new.strip():
                return ""
        return self._send(text.rstrip())

    @property
    def so_far(self) -> str:
        """What is known of the answer: its finished words."""
        more = shown_of(self.raw)
        if self.begun and (len(more) < MOST_REPEATED or self.begun.startswith(more)):
            return self.begun  # what is new in it is not known yet
        return joined(self.begun, more)

    @property
    def has_notes(self) -> bool:
        """Whether the model was sent notes of coordination."""
        return any(NOTE in message.content for message in self.messages)

    def rest(self, answer: str, reply: str) -> str | None:
        """What is left to send of the answer, now that it is known; `reply` is what its model wrote. None where what
        was sent is no beginning of either."""
        for whole in (answer, reply.lstrip()):
            if whole.startswith(self.sent):
                return whole[len(self.sent) :]
        return None

    def end(self) -> str:
        """What is left to send of a text that is not the answer, where its beginning was sent."""
        return self._send(joined(self.begun, self.raw.strip())) if self.sent else ""

    def _send(self, text: str) -> str:
        if not text.startswith(self.sent):
            return ""
        piece, self.sent = text[len(self.sent) :], text if len(text) > len(self.sent) else self.sent
        return piece
