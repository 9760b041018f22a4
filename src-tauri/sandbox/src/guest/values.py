"""What a tool's answer becomes in Python."""

from json import dumps, loads

from _runbridge.calls import MCPError


class Record(dict):
    """A mapping whose keys are also attributes: `issue.title` is `issue["title"]`.

    In everything else a dict. Keys named like a method of dict (`items`, `get`, ...) are reached by
    `[]` only. `str()` gives JSON, so code that expects the server's text can parse it.
    """

    __slots__ = ()

    def __getattr__(self, name):
        if name in self and not (name.startswith("__") and name.endswith("__")):
            return self[name]
        raise AttributeError("no %r here; there is %s" % (name, _names(self)))

    def __setattr__(self, name, value):
        self[name] = value

    def __delattr__(self, name):
        if name not in self:
            raise AttributeError("no %r here; there is %s" % (name, _names(self)))
        del self[name]

    def __dir__(self):
        return sorted(set(dir(dict)) | {key for key in self if isinstance(key, str)})

    def __str__(self):
        try:
            return dumps(self, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            return dict.__repr__(self)

    def __reduce__(self):
        return type(self), (dict(self),)

    def copy(self):
        return type(self)(self)


# User code pickles it under the name by which it may import it.
Record.__module__ = "mcp.runtime"


def _names(mapping):
    names = [str(key) for key in list(mapping)[:20]]
    if len(mapping) > 20:
        names.append("… (%d in all)" % len(mapping))
    return ", ".join(names) or "nothing"


def value_of(reply, server, tool):
    """The value of a tool's answer: `structuredContent` if there is one; else the only text block,
    decoded if it is a JSON object or array; else the list of blocks; None if there is nothing.

    Text that is a number, a word or empty stays text: "007" is not 7.
    """
    result, unwrap = reply.get("result") or {}, reply.get("unwrap")
    blocks = result.get("content")
    if not isinstance(blocks, list):
        blocks = []
    if result.get("isError"):
        raise MCPError(
            error_text(blocks, server, tool),
            server,
            tool,
            "tool_error",
            result.get("structuredContent"),
        )
    structured = result.get("structuredContent")
    if structured is not None:
        if unwrap and isinstance(structured, dict) and set(structured) == {"result"}:
            return structured["result"]
        return structured
    if not blocks:
        return None
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].get("type") == "text":
        return decoded(str(blocks[0].get("text", "")))
    return blocks


def decoded(text):
    """The object or array that `text` is as JSON, else `text`."""
    if text.lstrip(" \t\r\n")[:1] in ("{", "["):
        try:
            return loads(text, object_hook=Record)
        except (ValueError, RecursionError):
            pass
    return text


def error_text(blocks, server, tool):
    texts = [
        str(block.get("text", ""))
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text"
    ]
    text = "\n".join(text for text in texts if text)
    return text or "tool %r of server %r reported an error without a text" % (tool, server)
