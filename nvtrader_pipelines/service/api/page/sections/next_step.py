"""What to do next on the home."""

from datetime import UTC, datetime

from nvtrader_pipelines.notifications.home_status import read_home_status
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render


def read_next_step(shared: Context) -> Content:
    """Read what helps most now."""
    return Content({"next": render("next", step=read_home_status(shared.store, datetime.now(UTC)).next_step)})
