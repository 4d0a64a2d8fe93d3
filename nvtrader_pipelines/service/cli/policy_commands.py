"""`nvtrader policies`: list and show trained policies; activate or promote one."""

from nvtrader_pipelines.service.cli.exit_codes import FAILED, OK
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.policies import Policies

app = family_app(
    Policies, "policy_pages", exit_codes={"promote": lambda decision: OK if decision.activated else FAILED}
)
