"""Parameters that several operations have, each with the text that every door shows."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.marks import Flags
from nvtrader_pipelines.components.text import Reason, Text

Account = Annotated[str, Field(max_length=63, description="Account of data/accounts; `paper` needs no file.")]
PolicyName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="Experiment (its latest run) or beginning of a run's id; with /seed-K, a single seed.",
    ),
]
AuditReason = Annotated[Reason, Field(description="Why; recorded in the audit.")]
AuditNote = Annotated[Text, Field(description="Why; recorded in the audit.")]
Picture = Annotated[
    Path | None,
    Field(description="Picture to write, .png or .svg; default: in warehouse/pictures."),
    Flags(("--output", "-o")),
]
