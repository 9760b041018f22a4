"""Images and other things that user code shows: what kind they are, and their bytes."""

import base64
import io
import sys
import types


def images_of(thing):
    """`thing` as a list of (MIME type, bytes), or None if it is not an image of any kind."""
    if isinstance(thing, (bytes, bytearray, memoryview)):
        data = bytes(thing)
        kind = kind_of(data)
        return [(kind, data)] if kind else None
    if isinstance(thing, str):
        data = thing[:1024].lstrip("\ufeff \t\r\n")
        if data.startswith(("<svg", "<?xml", "<!DOCTYPE svg")):
            encoded = thing.encode("utf-8", "replace")
            if kind_of(encoded):
                return [("image/svg+xml", encoded)]
        return None
    if isinstance(thing, dict):
        return _block(thing)
    if isinstance(thing, types.ModuleType):
        if thing.__name__ == "matplotlib.pyplot":
            return [_figure(thing.gcf())]
        return None
    return _object(thing)


def kind_of(data):
    """The MIME type of an image by its first bytes, or None."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    prolog = head.startswith((b"<?xml", b"<!DOCTYPE svg"))
    if head.startswith(b"<svg") or (prolog and b"<svg" in head):
        return "image/svg+xml"
    return None


def _block(block):
    """A content block of MCP."""
    if block.get("type") == "image" and isinstance(block.get("data"), str):
        try:
            data = base64.b64decode(block["data"])
        except ValueError:
            raise ValueError("the data of the image block is not base64") from None
        return [(str(block.get("mimeType") or kind_of(data) or "application/octet-stream"), data)]
    return None


def _object(thing):
    # Asked of the type: an object that answers to every name is not an image.
    kind = type(thing)
    if hasattr(kind, "savefig"):
        return [_figure(thing)]
    figure = getattr(thing, "figure", None) if hasattr(kind, "get_figure") else None
    if figure is not None and hasattr(type(figure), "savefig"):
        return [_figure(figure)]
    for name, mime_type in (
        ("_repr_png_", "image/png"),
        ("_repr_jpeg_", "image/jpeg"),
        ("_repr_svg_", "image/svg+xml"),
    ):
        if hasattr(kind, name):
            data = getattr(thing, name)()
            if isinstance(data, tuple):
                data = data[0]
            if isinstance(data, str):
                if mime_type == "image/svg+xml":
                    data = data.encode("utf-8", "replace")
                else:
                    data = base64.b64decode(data)
            if data:
                return [(mime_type, bytes(data))]
    if "PIL.Image" in sys.modules and isinstance(thing, sys.modules["PIL.Image"].Image):
        buffer = io.BytesIO()
        if thing.mode not in ("1", "L", "LA", "I", "P", "RGB", "RGBA"):
            thing = thing.convert("RGB")
        thing.save(buffer, format="PNG")
        return [("image/png", buffer.getvalue())]
    return None


def _figure(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return "image/png", buffer.getvalue()
