"""An MCP server for `npm run test:clients`, built with FastMCP. Prints its URL once it listens, on a free port of 127.0.0.1."""

import base64
import socket

import uvicorn
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from mcp.types import EmbeddedResource, ResourceLink, TextResourceContents

server = FastMCP("harbour")

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR42mOQS1lAEmIY1TCqYfhqAACrBSIQPLnmlQAAAABJRU5ErkJggg=="
)


@server.tool
def greet(name: str) -> str:
    """Greets a visitor by name."""
    return f"Welcome to the harbour, {name}!"


@server.tool(output_schema=None)
def notice() -> ToolResult:
    """Reads the notice at the harbour gate."""
    return ToolResult(content="The gate closes at ten.")


@server.tool
def forecast(island: str, days: int) -> dict:
    """Tells the weather forecast for an island, for so many days."""
    return {"island": island, "days": [{"day": day + 1, "wind_knots": 8 + 3 * day} for day in range(days)]}


@server.tool(output_schema=None)
def timetable() -> ToolResult:
    """Tells when ferries leave, in words and as data."""
    return ToolResult(content="Two ferries leave today.", structured_content={"departures": ["09:15", "17:40"]})


@server.tool(output_schema=None)
def picture() -> Image:
    """Shows the harbour."""
    return Image(data=base64.b64decode(PICTURE), format="png")


@server.tool(output_schema=None)
def tides() -> ToolResult:
    """Gives the tide table as a resource, and a link to another."""
    table = TextResourceContents(uri="harbour://tides", mime_type="text/csv", text="high,06:12\nlow,12:30")
    link = ResourceLink(type="resource_link", uri="harbour://moon", name="Phases of the moon")
    return ToolResult(content=[EmbeddedResource(type="resource", resource=table), link])


@server.tool
def book(ferry: str) -> str:
    """Books a place on a ferry."""
    raise ToolError(f"The ferry {ferry} is fully booked until Friday.")


@server.tool(output_schema=None)
def logbook(lines: int, chinese: bool = False) -> ToolResult:
    """Reads the harbour's logbook, so many lines of it."""
    return ToolResult(content=write(lines, chinese))


@server.tool
def diary(lines: int) -> str:
    """Reads the harbour master's diary, so many lines of it."""
    return write(lines, False)


@server.tool
def inspect(lines: int) -> str:
    """Inspects the quay, and fails with a report of so many lines."""
    raise ToolError(write(lines, False))


def write(lines: int, chinese: bool) -> str:
    def line(number: int) -> str:
        if number == 7000:
            return f"{number}: a whale was seen off the pier."
        return f"{number}: 港口今天没有特别的事情。" if chinese else f"{number}: nothing out of the ordinary at the harbour."

    return "\n".join(line(number) for number in range(lines))


def main() -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(server.http_app(), log_level="warning")).run(sockets=[listening])


main()
