"""Images as clients send them: an https address, from which the models' servers fetch it, or bytes in a data: address.
Their kind is checked, and so is how much of them a request holds."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from core.images import MEDIA_TYPES, Image, image_of, media_type_of
from ui.endpoint.errors import ApiError, bad_request
from ui.endpoint.messages import ChatImage, ImagePart

#: The most images of a request, and bytes of all that it holds itself.
MOST_IMAGES, MOST_IMAGE_BYTES = 100, 10_000_000
_LONGEST_ADDRESS = 8_000
_DATA = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,", re.IGNORECASE)


def read_image(part: ImagePart, place: str) -> Image:
    """The image of a part. ApiError for an address that is none, and for bytes that are no image."""
    told = part.image_url if isinstance(part, ChatImage) else part
    url = part.image_url.url if isinstance(part, ChatImage) else part.image_url
    detail = told.detail or ""
    if (begins := _DATA.match(url)) is not None:
        return _from_bytes(url[begins.end() :], begins[1].lower(), detail, place)
    fits = url.startswith("https://") and url.isascii() and url.isprintable() and " " not in url
    if not fits or len(url) > _LONGEST_ADDRESS:
        raise bad_request(
            f"{place} has no address of an image that is read here: send an https address of at most "
            f"{_LONGEST_ADDRESS:,} characters, or data:image/png;base64, and its bytes.",
            place,
        )
    return Image(url=url, detail=detail)


def _from_bytes(data: str, media_type: str, detail: str, place: str) -> Image:
    media_type = "image/jpeg" if media_type == "image/jpg" else media_type
    if media_type not in MEDIA_TYPES:
        raise bad_request(
            f"{place} is of the kind {media_type[:80]}: images are read as {', '.join(MEDIA_TYPES)}.", place
        )
    try:
        content = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(f"{place} is not valid base64: send the image's bytes in it.", place) from None
    if (found := media_type_of(content)) != media_type:
        is_one = f"its bytes are {found}" if found else "its bytes are no such image"
        raise bad_request(f"{place} says that it is {media_type}, and {is_one}: send both alike.", place)
    return image_of(content, media_type, detail)


def check_sizes(images: Sequence[Image], field: str) -> None:
    """ApiError for more images, or bytes of them, than a request may hold."""
    if len(images) > MOST_IMAGES:
        raise bad_request(f"The request holds {len(images):,} images: send at most {MOST_IMAGES}.", field)
    if (size := sum(one.size for one in images)) > MOST_IMAGE_BYTES:
        raise ApiError(
            413,
            f"The images of the request have {size:,} bytes in all: send at most {MOST_IMAGE_BYTES:,}, by making them "
            "smaller, or by their https addresses.",
            code="too_large",
            param=field,
        )
