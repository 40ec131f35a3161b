"""Parts from everything that a caller may hand in, and what is refused."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.parts import (
    MEDIA_TYPES,
    FilePart,
    NativePart,
    TextPart,
    file_part,
    image_part,
    text_of,
)


@given(st.binary(max_size=50))
def test_bytes_become_base64_text(data: bytes) -> None:
    """B6: bytes never enter a history."""
    part = file_part(data, media_type="image/png", filename="x.png")
    assert part == FilePart(
        media_type="image/png",
        data=base64.b64encode(data).decode(),
        filename="x.png",
    )


def test_a_path_is_read_and_typed_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "note.MD"
    path.write_bytes(b"hi")
    assert file_part(path) == FilePart(
        media_type="text/markdown", data="aGk=", filename="note.MD"
    )


def test_a_path_that_tells_no_type_needs_one(tmp_path: Path) -> None:
    path = tmp_path / "README"
    path.write_bytes(b"hi")
    with pytest.raises(ValueError, match="media type of README is unknown"):
        file_part(path)
    assert file_part(path, media_type="text/plain").media_type == "text/plain"


def test_a_path_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_part(tmp_path / "gone.png")


@pytest.mark.parametrize(("extension", "media_type"), MEDIA_TYPES.items())
def test_every_extension_of_the_table_types_a_url(
    extension: str, media_type: str
) -> None:
    url = f"https://example.org/a.b/file.{extension.upper()}?q=1.exe#x"
    assert file_part(url) == FilePart(media_type=media_type, url=url)


def test_an_extension_beyond_the_table_is_asked_of_the_system() -> None:
    assert file_part("https://example.org/a.html").media_type == "text/html"


def test_a_url_without_a_type_is_refused_unless_it_is_an_image() -> None:
    url = "https://example.org/picture"
    with pytest.raises(ValueError, match="media type of https://example"):
        file_part(url)
    assert image_part(url) == FilePart(media_type="image/*", url=url)
    assert image_part(url, media_type="image/gif").media_type == "image/gif"
    assert image_part(f"{url}.png").media_type == "image/png"


def test_an_image_from_bytes_still_needs_its_type() -> None:
    with pytest.raises(ValueError, match="media type of bytes is unknown"):
        image_part(b"\x89PNG")


@pytest.mark.parametrize(
    ("uri", "media_type", "data"),
    [
        ("data:image/png;base64,aGk=", "image/png", "aGk="),
        ("data:text/plain;charset=utf-8;base64,aGk=", "text/plain", "aGk="),
        ("data:image/png;base64,aGk%3D", "image/png", "aGk="),
    ],
)
def test_a_data_uri_is_taken_apart(uri: str, media_type: str, data: str) -> None:
    assert file_part(uri) == FilePart(media_type=media_type, data=data)


def test_the_given_type_wins_over_that_of_a_data_uri() -> None:
    part = file_part("data:image/png;base64,aGk=", media_type="image/webp")
    assert part.media_type == "image/webp"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("data:image/png,hello", "is not base64"),
        ("data:image/png;base64", "malformed data URI"),
        ("data:;base64,aGk=", "media type of data URI is unknown"),
        ("data:image/png;base64,%%%", "neither a URL nor base64"),
        ("data:image/png;base64,ä", "neither a URL nor base64"),
    ],
)
def test_a_data_uri_that_cannot_be_read_is_refused(uri: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        file_part(uri)


def test_base64_text_needs_a_type() -> None:
    assert file_part("aGk=", media_type="audio/wav") == FilePart(
        media_type="audio/wav", data="aGk="
    )
    with pytest.raises(ValueError, match="media type of base64 text is unknown"):
        file_part("aGk=")


@pytest.mark.parametrize("text", ["photo.png", "/tmp/x", "aGk", "a b c d", "ä"])
def test_a_text_that_is_neither_a_url_nor_base64_says_what_to_do(text: str) -> None:
    with pytest.raises(ValueError, match="hand a Path for a file"):
        file_part(text, media_type="image/png")


@pytest.mark.parametrize(
    ("data", "url", "which"),
    [(None, None, "neither"), ("aGk=", "https://example.org", "both")],
)
def test_a_file_part_has_exactly_one_source(
    data: str | None, url: str | None, which: str
) -> None:
    with pytest.raises(ValueError, match=f"got {which}"):
        FilePart(media_type="image/png", data=data, url=url)


def test_the_words_of_a_content_are_those_of_its_parts() -> None:
    picture = FilePart(media_type="image/png", data="aGk=")
    parts = (
        TextPart(text="one"),
        picture,
        NativePart(block={"type": "x", "text": "two"}),
        NativePart(block={"text": 3}),
        TextPart(text=""),
    )
    assert text_of(parts) == "one two"
    assert text_of(" as it is ") == " as it is "
    assert text_of(()) == ""
