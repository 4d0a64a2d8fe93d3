"""What a person may be told."""


def is_one_line_error(text: str) -> bool:
    """An error of one line, without a trace."""
    return text.startswith("error: ") and "Traceback" not in text and len(text.strip().splitlines()) == 1
