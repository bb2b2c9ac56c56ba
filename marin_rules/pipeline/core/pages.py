"""The text of an HTML page's bytes."""

from __future__ import annotations


def decoded_page(body: bytes, charset: str | None) -> str:
    """Decoded as the server said, or else by the declared or detected encoding: servers are often wrong, but not about
    this. Some name no encoding at all ("none"), and many put its name into quotation marks."""
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

    encoding = map_encoding_to_html5(charset.strip("\"' "), fallback_utf8=False) if charset else None
    decoded: str = bytes_to_str(body, encoding or detect_encoding(body, from_html_meta=True))
    return decoded
