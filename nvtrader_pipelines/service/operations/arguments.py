"""Parameters that several operations have, each with the text that every door shows."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from nvtrader_pipelines.components.text import Flags, Reason, Text

Account = Annotated[str, Field(max_length=63, description="Account of data/accounts; `paper` needs no file.")]
OneAccount = Annotated[str | None, Field(max_length=63, description="Account of data/accounts; default: all accounts.")]
PolicyName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="Experiment (its latest run) or beginning of a run's id; with /seed-K, a single seed.",
    ),
]
RunName = Annotated[str, Field(max_length=200, description="Run id, its beginning, or the name of an experiment.")]
AuditReason = Annotated[Reason, Field(description="Why; recorded in the audit.")]
AuditNote = Annotated[Text, Field(description="Why; recorded in the audit.")]
Yes = Annotated[
    bool,
    Field(exclude=True, description="Start trainings of more than a day without confirmation."),
    Flags(("--yes", "-y")),
]
Judge = Annotated[bool, Field(exclude=True, description="Rank and validate all runs, and let the gate decide.")]
Symbols = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=32)], ...],
    Field(max_length=1000, description="Symbols, separated by commas or blanks; default: all."),
]
App = Annotated[
    Literal["stock", "portfolio", "crypto", "fundamentals", "paper"], Field(description="Application.")
]  # each with a file in `runs/presets`
OUTPUT = Flags(("--output", "-o"))
Picture = Annotated[
    str | Path | None, Field(description="Picture to write, .png or .svg; default: in warehouse/pictures."), OUTPUT
]
