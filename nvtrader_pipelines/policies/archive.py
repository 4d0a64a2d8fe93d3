"""Policy files without pickle: a reproducible zip of tensors (safetensors) and a JSON card."""

import io
import operator
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError, serialize

from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.agents import Agent

if TYPE_CHECKING:
    import torch

TENSORS, CARD = "policy.safetensors", "card.json"
FORMAT: Final = 1
EPOCH = (1980, 1, 1, 0, 0, 0)  # constant time stamps, so that equal content gives equal bytes


class PolicyCard(BaseModel):
    """Description of a policy: its origin, its training data and the inputs it expects."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Literal[1] = FORMAT
    experiment: str  # name@hash8
    spec_hash: str
    fold: int
    seed: int
    environment: EnvSpec
    agent: Agent
    symbols: tuple[str, ...]
    feature_names: tuple[str, ...]
    scaler: ObservationScaler
    train_first: str  # session of the first training decision
    train_last: str  # last session whose prices trained it
    train: tuple[tuple[str, str], ...] = Field(default=(), exclude_if=operator.not_)  # stretches, if several
    panel_digest: str  # of the market's content; the run's row names the table snapshots
    warnings: tuple[str, ...] = ()
    learning_curve: tuple[tuple[int, float], ...] = ()  # timesteps, mean reward per step
    start: str = Field(default="", exclude_if=operator.not_)  # SHA-256 of the policy file that it started from

    @property
    def stretches(self) -> tuple[tuple[str, str], ...]:
        """First and last session of every training stretch, in time order."""
        return self.train or ((self.train_first, self.train_last),)


class PolicyArchiveError(ValueError):
    """Policy file that cannot be used."""


def write_archive(card: PolicyCard, tensors: "dict[str, torch.Tensor]") -> bytes:
    """Return a policy file's bytes; equal cards and tensors give equal bytes."""
    stored = serialize({})
    if tensors:
        from safetensors.torch import save  # PyTorch takes seconds to import

        stored = save(tensors)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in ((CARD, card.model_dump_json(indent=1).encode()), (TENSORS, stored)):
            archive.writestr(zipfile.ZipInfo(name, date_time=EPOCH), content)
    return buffer.getvalue()


def read_archive(content: bytes) -> "tuple[PolicyCard, dict[str, torch.Tensor]]":
    """Read the card and the tensors of a policy file.

    Raises:
        PolicyArchiveError: if the bytes are not a policy file, or the card or tensors are damaged.
    """
    from safetensors.torch import load  # PyTorch takes seconds to import

    with _archive_errors():
        card, tensors = _members(content)
        return PolicyCard.model_validate_json(card), load(tensors)


def read_stored(content: bytes) -> tuple[PolicyCard, bytes]:
    """Read the card of a policy file and its tensors as they are stored, safetensors.

    Raises:
        PolicyArchiveError: if the bytes are not a policy file, or the card is damaged.
    """
    with _archive_errors():
        card, tensors = _members(content)
        return PolicyCard.model_validate_json(card), tensors


def read_card(content: bytes) -> PolicyCard:
    """Read the card of a policy file without checking the tensors.

    Raises:
        PolicyArchiveError: if the bytes are not a policy file, or the card is damaged.
    """
    with _archive_errors():
        card, _ = _members(content)
        return PolicyCard.model_validate_json(card)


def _members(content: bytes) -> tuple[bytes, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sorted(archive.namelist()) != [CARD, TENSORS]:
            raise ValueError(f"found {', '.join(archive.namelist()) or 'an empty zip'}")
        return archive.read(CARD), archive.read(TENSORS)


@contextmanager
def _archive_errors() -> Iterator[None]:
    """Turn the errors of reading a damaged file into a `PolicyArchiveError`."""
    try:
        yield
    except (zipfile.BadZipFile, ValueError, SafetensorError, RuntimeError, OSError, EOFError) as error:
        raise PolicyArchiveError(
            f"a policy file must be a zip with {CARD} and {TENSORS}, but this one cannot be read ({error}); "
            "restore the file or train the experiment again"
        ) from error
