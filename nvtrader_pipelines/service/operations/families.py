"""All families of operations, in the order in which people meet them."""

from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies
from nvtrader_pipelines.service.operations.searches import Searches

FAMILIES = (Searches, Policies, Plans, Accounts)
