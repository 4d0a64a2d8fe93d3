"""Types that bodies of requests share."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.component import Component

Symbols = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=32)], ...], Field(max_length=1000)]


class Body(Component):
    """Body of a request, strict as the components of an experiment."""
