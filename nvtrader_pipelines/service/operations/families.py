"""All families of operations, in the order in which people meet them."""

from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies

FAMILIES = (WholeHome, Policies, Plans, Accounts)
