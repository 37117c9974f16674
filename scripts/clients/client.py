"""An MCP client for `npm run test:clients`: `client.py mcp` is the official SDK's, `client.py fastmcp` is FastMCP's.

It connects to the servers that SERVERS names. Its first line is what it was told by the server "switchboard". Then it makes
the calls that it reads: a line of JSON each, answered by a line of JSON.
"""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from urllib.parse import parse_qsl, urlsplit

import fastmcp
import mcp
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientMetadata


class Memory:
    """What the SDK keeps of a sign-in."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


def sign_in(url: str) -> OAuthClientProvider:
    opened = []

    async def leave(auth_url: str) -> None:
        opened.append(auth_url)

    async def come_back() -> AuthorizationCodeResult:
        browser = [os.environ["SIGN_IN"], opened[-1]]
        back = await asyncio.to_thread(subprocess.check_output, browser, text=True)
        query = dict(parse_qsl(urlsplit(back.strip()).query))
        return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query["iss"])

    metadata = OAuthClientMetadata(client_name="Python SDK", redirect_uris=["http://127.0.0.1:8765/callback"])
    return OAuthClientProvider(url, metadata, Memory(), redirect_handler=leave, callback_handler=come_back)


def official(url: str, headers: dict[str, str], signIn: bool) -> mcp.Client:
    auth = sign_in(url) if signIn else None
    return mcp.Client(streamable_http_client(url, http_client=create_mcp_http_client(headers, auth=auth)))


def of_fastmcp(url: str, headers: dict[str, str], signIn: bool) -> fastmcp.Client:
    return fastmcp.Client(StreamableHttpTransport(url, headers, auth="oauth" if signIn else None))


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
            clients[name] = await opened.enter_async_context(connect(**server))
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
