"""Books and kill switches of a home, in the Postgres of its settings or in files."""

from nvtrader_pipelines.storage.account_book import AccountBook, SqliteBook, book_path
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.settings import database_url


def open_book(home: Home, account: str) -> AccountBook:
    """Open the book of an account, in the Postgres of the settings or its file."""
    if (url := database_url(home)) is None:
        return SqliteBook(home, account)
    from nvtrader_pipelines.storage.postgres_book import PostgresBook

    return PostgresBook(url, account)


def open_books(home: Home) -> dict[str, AccountBook]:
    """Open the books of all accounts that have one, by account."""
    if url := database_url(home):
        from nvtrader_pipelines.storage.postgres_book import PostgresBook, booked_accounts

        return {account: PostgresBook(url, account) for account in booked_accounts(url)}
    note_read(book_path(home, "").parent)
    return {path.stem: SqliteBook(home, path.stem) for path in sorted(book_path(home, "").parent.glob("*.db"))}


def open_switch(home: Home, account: str | None) -> FileKillSwitch:
    """Open the kill switch of an account, or of all of them, in the Postgres of the settings or a file."""
    if (url := database_url(home)) is None:
        return FileKillSwitch(home, account)
    from nvtrader_pipelines.storage.postgres_switch import PostgresKillSwitch

    return PostgresKillSwitch(home, account, url)
