"""A page of the app's own parts that renders every hostile text and one harmless reply, each in its frame."""

from __future__ import annotations

from tests.hostile import HOSTILE
from ui.web.kit.text import text_block

HARMLESS = "## Sum\n\nSo \\(x^2\\) is **four**:\n\n$$\\frac{8}{2}$$\n\n- one\n\n| a |\n|---|\n| 1 |\n"

for number, text in enumerate((HARMLESS, *HOSTILE)):
    text_block(text, key=f"n{number}", look="rendered")
