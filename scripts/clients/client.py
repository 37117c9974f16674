"""An MCP client for `npm run test:clients`: `client.py mcp` is the official SDK's, `client.py fastmcp` is FastMCP's.

It connects to the servers that SERVERS names. Its first line is what it was told by the server "switchboard". Then it makes
the calls that it reads: a line of JSON each, answered by a line of JSON.
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack

import fastmcp
import mcp
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


def official(url: str, headers: dict[str, str]) -> mcp.Client:
    return mcp.Client(streamable_http_client(url, http_client=create_mcp_http_client(headers)))


def of_fastmcp(url: str, headers: dict[str, str]) -> fastmcp.Client:
    return fastmcp.Client(StreamableHttpTransport(url, headers))


async def call(client: mcp.Client | fastmcp.Client, tool: str, arguments: dict) -> dict:
    if isinstance(client, fastmcp.Client):
        result = await client.call_tool(tool, arguments, raise_on_error=False)
    else:
        result = await client.call_tool(tool, arguments)
    answer = {
        "content": [block.model_dump(mode="json", by_alias=True) for block in result.content],
        "isError": bool(result.is_error),
    }
    if result.structured_content is not None:
        answer["structuredContent"] = result.structured_content
    return answer


async def main() -> None:
    connect = {"mcp": official, "fastmcp": of_fastmcp}[sys.argv[1]]
    async with AsyncExitStack() as opened:
        clients = {}
        for name, server in json.loads(os.environ["SERVERS"]).items():
            clients[name] = await opened.enter_async_context(connect(server["url"], server["headers"]))
        switchboard = clients["switchboard"]
        listed = await switchboard.list_tools()
        tools = [tool.model_dump(mode="json", by_alias=True) for tool in getattr(listed, "tools", listed)]
        print(json.dumps({"instructions": switchboard.instructions, "tools": tools}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            wanted = json.loads(line)
            try:
                answer = await call(clients[wanted["server"]], wanted["tool"], wanted["input"])
            except Exception as error:
                answer = {"content": [{"type": "text", "text": str(error)}], "isError": True}
            print(json.dumps(answer), flush=True)


asyncio.run(main())
