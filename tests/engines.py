"""SQLAlchemy engines of SQLite files, shared by the connections of a process.

Dagster makes one for every event that it stores, which then compiles its statements anew: a quarter of a run's time.
"""

from typing import Any

import sqlalchemy as sa


def share_engines() -> None:
    """Return one engine per address from now on where an engine holds no connections; call it before Dagster's import.

    Such an engine is valid in forks and after its file was removed.
    """
    create, engines = sa.create_engine, {}

    def create_engine(url: Any, **options: Any) -> sa.Engine:
        if options.get("poolclass") is not sa.NullPool:
            return create(url, **options)
        key = str(url), repr(sorted(options.items(), key=lambda option: option[0]))
        if key not in engines:
            engines[key] = create(url, **options)
        return engines[key]

    sa.create_engine = create_engine
