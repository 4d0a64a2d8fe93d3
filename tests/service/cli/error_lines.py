"""Checks of error output."""


def is_one_line_error(text: str) -> bool:
    """Whether the text is an error in one line, without a trace."""
    return text.startswith("error: ") and "Traceback" not in text and len(text.strip().splitlines()) == 1
