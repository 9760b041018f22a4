"""The Python SDK's Client: it asks for the newest revision, which has no greeting."""

import asyncio

from mcp import Client, StdioServerParameters

import common


async def main():
    parameters = StdioServerParameters(command=common.command(), env=common.environment())
    async with Client(parameters) as client:
        assert client.protocol_version == "2026-07-28", client.protocol_version
        tools = await client.list_tools()
        common.check_tools([tool.name for tool in tools.tools])
        reply = await client.call_tool("run_python", {"code": common.CODE, "timeout": 60})
        common.check_reply(reply.is_error, reply.structured_content, [block.text for block in reply.content])
        reply = await client.call_tool("run_python", {"code": "1 / 0"})
        common.check_failure(reply.is_error, reply.structured_content)
        manual = await client.read_resource(common.CAPABILITIES)
        common.check_manual(manual.contents[0].text)


asyncio.run(main())
