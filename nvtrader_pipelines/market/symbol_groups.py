"""Sentences on symbols, one for all symbols that share a message."""

from collections.abc import Iterable, Sequence

N_NAMED = 5  # symbols of a sentence; the rest is counted


def name_symbols(symbols: Sequence[str]) -> str:
    """Name one symbol, or count several and name the first ones."""
    if len(symbols) == 1:
        return symbols[0]
    more = f" and {len(symbols) - N_NAMED} more" if len(symbols) > N_NAMED else ""
    return f"{len(symbols)} symbols ({', '.join(symbols[:N_NAMED])}{more})"


def group_by_message(messages: Iterable[tuple[str, str]]) -> list[str]:
    """Write a sentence per distinct message, with its symbols in front."""
    symbols: dict[str, list[str]] = {}
    for symbol, message in messages:
        symbols.setdefault(message, []).append(symbol)
    return [f"{name_symbols(names)}: {message}" for message, names in symbols.items()]
