"""The fastmcp library's Client."""

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

import common


async def main():
    transport = StdioTransport(common.command(), [], env=common.environment(), keep_alive=False)
    async with Client(transport) as client:
        common.check_tools([tool.name for tool in await client.list_tools()])
        reply = await client.call_tool(
            "run_python", {"code": common.CODE, "timeout": 60}, raise_on_error=False
        )
        texts = [block.text for block in reply.content]
        common.check_reply(reply.is_error, reply.structured_content, texts)
        reply = await client.call_tool("run_python", {"code": "1 / 0"}, raise_on_error=False)
        common.check_failure(reply.is_error, reply.structured_content)
        contents = await client.read_resource(common.CAPABILITIES)
        common.check_manual(contents[0].text)


asyncio.run(main())
