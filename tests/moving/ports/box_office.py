"""The box office, moved from the official SDK: what goes in is checked by models, and what comes out is structured."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from pydantic import BaseModel, Field

from greenroom import Server, ToolAnnotations, ToolError

mcp = Server("box office", version="1", instructions="Ask for seats before you book.")


class Seat(BaseModel):
    """One seat."""

    row: Annotated[str, Field(max_length=2)]
    number: Annotated[int, Field(ge=1, le=40)]


class Booking(BaseModel):
    """The booked seats and their reference."""

    reference: str
    seats: list[Seat]
    total: float = Field(description="In crowns")


class Takings(TypedDict):
    """The income of one play."""

    play: str
    crowns: float


@dataclass
class Evening:
    """One evening's play."""

    play: str
    sold_out: bool


@mcp.tool
def book(seats: list[Seat], price: Literal["full", "student"] = "full") -> Booking:
    """Book seats."""
    each = 20.0 if price == "full" else 12.5
    return Booking(reference="B1", seats=seats, total=each * len(seats))


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
def takings(play: str) -> Takings:
    """Return the income of a play.

    The sum is of this season.
    """
    return Takings(play=play, crowns=1234.5)


@mcp.tool(title="What is on")
def on_tonight(stages: list[str]) -> list[Evening]:
    """Tonight's plays, one for each stage."""
    return [Evening(f"Hamlet in the {stage}", sold_out=False) for stage in stages]


@mcp.tool
def free_seats() -> dict[str, int]:
    """How many seats are free, by row."""
    return {"A": 3, "B": 12}


@mcp.tool
async def occupancy(evening: int = 1) -> float:
    """How full the house is."""
    return evening / 4


@mcp.tool
def cancel(reference: str) -> str:
    """Cancel a booking."""
    if reference != "B1":
        raise ToolError(f"no booking is called {reference}")
    return "cancelled"


if __name__ == "__main__":
    mcp.run()
