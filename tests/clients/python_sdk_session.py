"""The Python SDK's ClientSession: the greeting era."""

import asyncio

from mcp import ClientSession, StdioServerParameters, stdio_client

import common


async def main():
    parameters = StdioServerParameters(command=common.command(), env=common.environment())
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        greeting = await session.initialize()
        assert greeting.server_info.name == "runbridge", greeting
        tools = await session.list_tools()
        common.check_tools([tool.name for tool in tools.tools])
        reply = await session.call_tool("run_python", {"code": common.CODE, "timeout": 60})
        common.check_reply(reply.is_error, reply.structured_content, [block.text for block in reply.content])
        reply = await session.call_tool("run_python", {"code": "1 / 0"})
        common.check_failure(reply.is_error, reply.structured_content)
        resources = await session.list_resources()
        assert [str(one.uri) for one in resources.resources] == [common.CAPABILITIES], resources
        manual = await session.read_resource(common.CAPABILITIES)
        common.check_manual(manual.contents[0].text)


asyncio.run(main())
