"""Types that bodies of requests share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=1000)]
Symbols = Annotated[list[Annotated[str, Field(min_length=1, max_length=32)]], Field(max_length=1000)]


class Body(BaseModel):
    """Body of a request, or part of an answer to one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
