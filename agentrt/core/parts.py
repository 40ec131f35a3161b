"""Content parts: text, files, and blocks in a vendor's own form.

Images, sound and documents are all files with a media type, so that a new format needs
no new kind of part. Inline data is kept as base64 text, because a history must survive
being written down. What a vendor accepts is its provider's business.
"""

import base64
import binascii
import mimetypes
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from attrs import frozen

__all__ = [
    "Content",
    "FilePart",
    "NativePart",
    "Part",
    "TextPart",
    "file_part",
    "image_part",
    "is_content",
    "text_of",
]

MEDIA_TYPES: Final[Mapping[str, str]] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "json": "application/json",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
}
"""By file extension. What is not here is asked of the operating system."""

DATA_URI = re.compile(r"data:(?P<type>[^;,]*)(?P<rest>(;[^;,]*)*),(?P<data>.*)", re.S)


@frozen(kw_only=True)
class TextPart:
    text: str


@frozen(kw_only=True)
class FilePart:
    """An image, a recording, a document: exactly one of `data` and `url`."""

    media_type: str
    """As in `image/png`. `image/*` where a URL does not tell."""

    data: str | None = None
    """Base64 text."""

    url: str | None = None
    filename: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise ValueError(
                "a FilePart has exactly one of 'data' and 'url', "
                f"got {'both' if self.data is not None else 'neither'}"
            )


@frozen(kw_only=True)
class NativePart:
    """A block in one vendor's own form, handed to its wire as it is."""

    block: Mapping[str, Any]

    @property
    def text(self) -> str:
        text = self.block.get("text")
        return text if isinstance(text, str) else ""


Part: TypeAlias = TextPart | FilePart | NativePart
"""Closed union."""

Content: TypeAlias = str | Sequence[Part]
"""What a message says: plain text, or parts in order."""


def is_content(value: Any) -> bool:
    """Whether this is what a message may say: a text, or parts."""
    if isinstance(value, str):
        return True
    parts = (TextPart, FilePart, NativePart)
    return isinstance(value, list | tuple) and all(isinstance(p, parts) for p in value)


def text_of(content: Content) -> str:
    """The words of a content: a text as it is, the parts that have words by spaces."""
    if isinstance(content, str):
        return content
    texts = (part.text for part in content if not isinstance(part, FilePart))
    return " ".join(text for text in texts if text)


def file_part(
    source: str | bytes | Path,
    *,
    media_type: str | None = None,
    filename: str | None = None,
) -> FilePart:
    """A part from a path, an http(s) URL, a data URI, base64 text or bytes.

    The type of a path or URL is read off its name. Bytes and base64 text need
    `media_type`: it is never guessed. A path is read at once, in this thread.

    Raises:
        ValueError: the type is unknown, the data URI is not base64, or the text is
            neither a URL nor base64.
        OSError: the file cannot be read.
    """
    match source:
        case Path():
            kind = media_type or _type_of_name(source.name)
            data = base64.b64encode(source.read_bytes()).decode()
            return FilePart(
                media_type=_known(kind, source.name),
                data=data,
                filename=filename or source.name,
            )
        case bytes():
            data = base64.b64encode(source).decode()
            return FilePart(
                media_type=_known(media_type, "bytes"), data=data, filename=filename
            )
        case str() if source.startswith("data:"):
            return _from_data_uri(source, media_type, filename)
        case str() if source.startswith(("http://", "https://")):
            kind = media_type or _type_of_name(urlsplit(source).path)
            return FilePart(
                media_type=_known(kind, source), url=source, filename=filename
            )
        case _:
            kind = _known(media_type, "base64 text")
            return FilePart(media_type=kind, data=_base64(source), filename=filename)


def image_part(
    source: str | bytes | Path,
    *,
    media_type: str | None = None,
    filename: str | None = None,
) -> FilePart:
    """Like `file_part`; a URL whose name tells no type becomes `image/*`."""
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        media_type = media_type or _type_of_name(urlsplit(source).path) or "image/*"
    return file_part(source, media_type=media_type, filename=filename)


def _from_data_uri(uri: str, media_type: str | None, filename: str | None) -> FilePart:
    match = DATA_URI.fullmatch(uri)
    if match is None:
        raise ValueError(f"malformed data URI {uri[:40]!r}")
    if not match["rest"].endswith(";base64"):
        raise ValueError(f"data URI {uri[:40]!r} is not base64: say ';base64,' in it")
    data = unquote_to_bytes(match["data"]).decode("ascii", "replace")
    kind = _known(media_type or match["type"] or None, "data URI")
    return FilePart(media_type=kind, data=_base64(data), filename=filename)


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(
            f"{text[:40]!r} is neither a URL nor base64 text ({error}); "
            "hand a Path for a file"
        ) from None
    return text


def _type_of_name(name: str) -> str | None:
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    return MEDIA_TYPES.get(extension) or mimetypes.guess_type(name)[0]


def _known(media_type: str | None, what: str) -> str:
    if not media_type:
        raise ValueError(
            f"the media type of {what} is unknown: pass media_type='image/png' "
            "or the like"
        )
    return media_type
