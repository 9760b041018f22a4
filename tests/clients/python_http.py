"""The Python SDK over HTTP, both generations: with a session, and without one."""

import asyncio
import os

import httpx2 as httpx
from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client

import common

CODE = "x = 6 * 7\nprint('hello')\nx"
URL, TOKEN = os.environ["URL"], os.environ["TOKEN"]


def http():
    return httpx.AsyncClient(headers={"Authorization": "Bearer " + TOKEN}, timeout=60)


def check(reply):
    assert not reply.is_error, reply
    assert reply.structured_content["stdout"] == "hello\n", reply
    assert reply.structured_content["result"] == "42", reply


async def main():
    async with http() as client, streamable_http_client(URL, http_client=client) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            greeting = await session.initialize()
            assert greeting.protocol_version == "2025-11-25", greeting
            common.check_tools([tool.name for tool in (await session.list_tools()).tools])
            check(await session.call_tool("run_python", {"code": CODE, "timeout": 60}))
            manual = await session.read_resource(common.CAPABILITIES)
            common.check_manual(manual.contents[0].text)
    async with http() as client:
        async with Client(streamable_http_client(URL, http_client=client)) as newest:
            assert newest.protocol_version == "2026-07-28", newest.protocol_version
            check(await newest.call_tool("run_python", {"code": CODE, "timeout": 60}))
            reply = await newest.call_tool("run_python", {"code": "print(x)"})
            assert reply.structured_content["stdout"] == "42\n", reply


asyncio.run(main())
