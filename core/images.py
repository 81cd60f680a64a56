"""Images in a person's messages: each stands as a short text in its message's content, and beside it what it is.

One that has an address is told by it. Of one that was sent as bytes its kind, size and SHA-256 are kept; the bytes
themselves go to the models alone and are stored nowhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from core.episode import Message
from core.texts import well_formed

#: Stands for an image wherever only text is read.
PLACEHOLDER: Final = "[image]"
#: Kinds of images -> how their bytes begin, and what stands at a place behind that.
_BEGINNINGS: Mapping[str, tuple[bytes, int, bytes]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n", 0, b""),
    "image/jpeg": (b"\xff\xd8\xff", 0, b""),
    "image/gif": (b"GIF8", 0, b""),
    "image/webp": (b"RIFF", 8, b"WEBP"),
}
MEDIA_TYPES: Final = tuple(_BEGINNINGS)


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a message. `at`: where its placeholder begins in the content, in characters. It has a `url` (https),
    or a media type, a size in bytes and a SHA-256 in hexadecimal digits; `detail` is how closely it shall be looked at,
    in OpenAI's words (empty: not said). `data`: its bytes as a data: address, which is no part of what is stored."""

    at: int = 0
    url: str = ""
    media_type: str = ""
    size: int = 0
    sha256: str = ""
    detail: str = ""
    data: str = field(default="", repr=False, compare=False)

    @property
    def told(self) -> dict[str, str | int]:
        """What is stored of it."""
        own = {name: getattr(self, name) for name in ("url", "media_type", "size", "sha256", "detail")}
        return {"at": self.at, **{name: value for name, value in own.items() if value}}


def image_of(content: bytes, media_type: str, detail: str = "") -> Image:
    """An image that was sent as bytes."""
    data = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
    digest = hashlib.sha256(content).hexdigest()
    return Image(media_type=media_type, size=len(content), sha256=digest, detail=detail, data=data)


def media_type_of(content: bytes) -> str:
    """The kind of an image by its first bytes; empty for none of MEDIA_TYPES."""
    for name, (begins, at, word) in _BEGINNINGS.items():
        if content.startswith(begins) and content[at : at + len(word)] == word:
            return name
    return ""


def as_content(parts: Iterable[str | Image]) -> tuple[str, tuple[Image, ...]]:
    """Texts and images in their order as one text, which a placeholder on a line of its own stands in for each image;
    and the images with their places in it."""
    content, images, after_image = "", list[Image](), False
    for part in parts:
        if isinstance(part, str):
            content = well_formed(f"{content}\n{part}" if after_image and part else content + part)
            after_image = after_image and not part
            continue
        content += "\n" if content else ""
        images.append(replace(part, at=len(content)))
        content, after_image = content + PLACEHOLDER, True
    return content, tuple(images)


def moved(images: Iterable[Image], by: int) -> tuple[Image, ...]:
    """The images of a content before which so many characters were put."""
    return tuple(replace(one, at=one.at + by) for one in images)


def beside_with(beside: Mapping[str, Any], images: Sequence[Image]) -> str:
    """`Message.beside` with what is stored of images; empty where nothing stands there."""
    whole = {**beside, **({"images": [one.told for one in images]} if images else {})}
    return well_formed(json.dumps(whole)) if whole else ""


def images_in(message: Message) -> tuple[Image, ...]:
    """The images of a message, in their order. What is no image in an imported one says nothing."""
    if '"images"' not in message.beside:
        return ()
    listed = json.loads(message.beside).get("images")
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return tuple(image for entry in entries if (image := _read(entry)) is not None)


def _read(entry: Mapping[str, Any]) -> Image | None:
    known = {name: type(getattr(Image(), name)) for name in Image.__dataclass_fields__ if name != "data"}
    given = {name: value for name, value in entry.items() if name in known}
    fits = all(type(value) is known[name] for name, value in given.items())
    return Image(**given) if fits and (given.get("url") or given.get("sha256")) else None


def put_before(text: str, message: Message) -> Message:
    """The message with a text before its own."""
    content = f"{text}\n\n{message.content}"
    if not (images := images_in(message)):
        return replace(message, content=content)
    beside = {name: value for name, value in json.loads(message.beside).items() if name != "images"}
    by = len(content) - len(message.content)
    return replace(message, content=content, beside=beside_with(beside, moved(images, by)))


def image_count(messages: Iterable[Message]) -> int:
    """How many images messages hold."""
    return sum(len(images_in(one)) for one in messages)


def unkept_images(messages: Iterable[Message], data: Mapping[str, str] | None = None) -> tuple[Image, ...]:
    """The images of messages that no model can be sent: without an address, and not in `data`, which holds bytes as
    data: addresses by their SHA-256."""
    every = (image for one in messages for image in images_in(one))
    return tuple(one for one in every if not one.url and one.sha256 not in (data or {}))


def content_parts(message: Message, data: Mapping[str, str]) -> list[dict[str, Any]]:
    """The content of a message in OpenAI's form, images among texts; empty for one without images. `data` as in
    `unkept_images`, of which there may be none."""
    parts, end, images = list[dict[str, Any]](), 0, images_in(message)
    for image in images:
        parts += _text_part(message.content[end : image.at], after=bool(end), before=True)
        detail = {"detail": image.detail} if image.detail else {}
        source = {"url": image.url or data[image.sha256], **detail}
        parts.append({"type": "image_url", "image_url": source})
        end = image.at + len(PLACEHOLDER)
    return parts + _text_part(message.content[end:], after=True, before=False) if images else []


def _text_part(text: str, *, after: bool, before: bool) -> list[dict[str, Any]]:
    """A text that stands after an image, before one, or both, without the line's end that `as_content` put between."""
    text = text.removeprefix("\n") if after else text
    text = text.removesuffix("\n") if before else text
    return [{"type": "text", "text": text}] if text else []
