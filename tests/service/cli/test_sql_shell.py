import pytest

from nvtrader_pipelines.service.cli.sql_shell import answer, statements
from nvtrader_pipelines.storage.errors import StorageError


def typed(*lines):
    """Return a function that reads these lines and raises the exceptions among them."""
    left = list(lines)
    prompts = []

    def next_line(prompt: str) -> str:
        prompts.append(prompt)
        line = left.pop(0) if left else EOFError()
        if isinstance(line, BaseException):
            raise line
        return line

    return next_line, prompts


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["SELECT 1;"], ["SELECT 1;"]),
        (["SELECT", "1", ";"], ["SELECT\n1\n;"]),
        (["", "  ", "SELECT 1 ; "], ["SELECT 1 ;"]),
        (["SELECT 1"], ["SELECT 1"]),
        ([".tables"], [".tables"]),
        (["SELECT 1;", ".quit", "SELECT 2;"], ["SELECT 1;"]),
        (["SELECT", "quit", ";"], ["SELECT\nquit\n;"]),
        (["SELECT half", KeyboardInterrupt(), "SELECT 2;"], ["SELECT 2;"]),
        ([], []),
    ],
)
def test_lines_become_whole_statements(lines, expected):
    assert list(statements(typed(*lines)[0])) == expected


def test_prompt_changes_within_an_unfinished_statement():
    next_line, prompts = typed("SELECT", "1;")
    assert list(statements(next_line)) == ["SELECT\n1;"]
    assert prompts == ["nvtrader> ", "     ...> ", "nvtrader> "]


@pytest.mark.parametrize("statement", ["", " ; ", ";\n"])
def test_empty_statement_is_refused(store, statement):
    with pytest.raises(StorageError):
        answer(store, statement)
