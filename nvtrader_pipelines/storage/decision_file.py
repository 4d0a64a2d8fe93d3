"""Decisions of people as an append-only file of JSON lines, `data/audit/rebalance_decisions.jsonl`."""

import os
import re
from collections.abc import Callable, Sequence

from nvtrader_pipelines.preferences.decision_lines import format_lines
from nvtrader_pipelines.preferences.decisions import DecisionRow
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import read_regular_file
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.shared_files import SharedFiles

_WHOLE = re.compile(  # line of this version, written to its end
    rb'^\{"schema_version":\d+,"decision_id":"([0-9a-f]{16})".*"outcome_known":(?:true|false)\}$', re.MULTILINE
)


class DecisionFile:
    """File of decisions of a home, which several processes may append to."""

    def __init__(self, home: Home) -> None:
        self.path = home.audit / "rebalance_decisions.jsonl"
        self._shared = SharedFiles(home)

    def append_missing(self, missing_rows: Callable[[set[str]], Sequence[DecisionRow]]) -> int:
        """Append decisions durably, given the ids that the file has; a torn last line stays, as a line of its own.

        Raises:
            StorageError: if the file cannot be read or written.
        """
        try:
            with self._shared.lock(self.path.with_name(f".{self.path.name}.lock")):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._shared.pull(self.path)
                content = read_regular_file(self.path)
                rows = missing_rows({match[1].decode() for match in _WHOLE.finditer(content)})
                if rows:
                    is_torn = not content.endswith(b"\n") and bool(content)
                    lines = b"\n" * is_torn + b"".join(line + b"\n" for line in format_lines(rows))
                    self._shared.extend(self.path, lines)
                    with self.path.open("ab") as file:
                        file.write(lines)
                        file.flush()
                        os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"the decisions {self.path} cannot be written: {error.strerror}") from error
        return len(rows)

    def read_lines(self) -> list[bytes]:
        """Read the lines of the file without their ends, also those that are no decision.

        Raises:
            StorageError: if the file cannot be read.
        """
        self._shared.try_pull(self.path)
        content = read_regular_file(self.path)
        return content.removesuffix(b"\n").split(b"\n") if content else []
