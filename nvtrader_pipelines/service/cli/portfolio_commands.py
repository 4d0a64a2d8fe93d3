"""`nvtrader portfolio`: show an account, accept holdings that differ, or reset a simulated account."""

from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.accounts import Accounts

app = family_app(Accounts, "account_pages")
