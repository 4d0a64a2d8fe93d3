import pytest
import typer

from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, FAILED, exit_on_error


def test_exit_of_a_command_keeps_its_code(capsys):
    with pytest.raises(typer.Exit) as ended, exit_on_error(verbose=False):
        raise typer.Exit(FAILED)
    assert ended.value.exit_code == FAILED
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("caps must sum to 1"), BAD_INPUT, "error: caps must sum to 1\n"),
        (RuntimeError("no\nluck"), FAILED, "error: unexpected RuntimeError: no luck; run again with --verbose\n"),
    ],
)
def test_error_is_printed_in_one_line_with_its_exit_code(capsys, error, code, line):
    with pytest.raises(SystemExit) as ended, exit_on_error(verbose=False):
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err == line
