"""Names of sources."""

from typing import Annotated

from pydantic import Field

LANDING = "landing"  # source that reads `data/landing` itself; one of another name reads its folder there
SourceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
