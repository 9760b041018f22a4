"""What every real client must see, whatever library it is written with."""

import os

CAPABILITIES = "resource://mcp-server-code-execution-mode/capabilities"
CODE = """
import asyncio
now, text = await asyncio.gather(
    mcp_time.get_current_time(timezone="UTC"),
    mcp_filesystem.read_text_file(path="%s/files/hello.txt"),
)
print(text["content"].strip())
now["timezone"]
""" % os.environ["HOME"]


def command():
    return os.environ["SIDECAR"]


def environment():
    """All of this process's variables: the libraries hand on only a few by themselves."""
    return dict(os.environ)


def check_tools(names):
    assert names == ["run_python"], names


def check_reply(is_error, structured, texts):
    assert not is_error, texts
    assert structured["status"] == "success", structured
    assert structured["stdout"] == "hello from a file\n", structured
    assert structured["result"] == "'UTC'", structured
    assert texts[0].startswith("hello from a file\n"), texts
    assert "'UTC'" in texts[0], texts


def check_failure(is_error, structured):
    assert is_error, structured
    assert structured["status"] == "error", structured


def check_manual(text):
    for name in ("search_tool_docs", "save_memory", "call_tool", "gather"):
        assert name in text, f"the manual does not tell of {name}"
