"""Texts as files bring them and as databases and streams can hold them."""

from __future__ import annotations

import codecs
from pathlib import Path

#: How files of wider characters begin; the longer marks first, as one begins like a shorter one.
_WIDE = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def well_formed(text: str) -> str:
    """`text` with what no database or UTF-8 stream can hold (lone surrogates, NUL) replaced by U+FFFD."""
    if "\0" not in text and text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


def check_encoding(content: bytes) -> None:
    """UnicodeError, half a sentence, for the beginning of a file that is UTF-16 or UTF-32 text, marked or not."""
    name = next((name for mark, name in _WIDE.items() if content.startswith(mark)), None)
    if name is None and sorted(content[:2])[:1] == [0] and chr(max(content[:2])).isprintable():
        name = "UTF-16"  # a character of ASCII in two bytes
    if name is not None:
        raise UnicodeError(f"it is {name} text: save it as UTF-8")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file with `\\n` for every end of a line, without the byte order mark that some editors put
    before it. OSError, or UnicodeError with half a sentence for another encoding."""
    content = path.read_bytes()
    check_encoding(content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnicodeError("it is not UTF-8 text: save it as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
