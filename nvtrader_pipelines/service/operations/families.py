"""All families of operations, in the order in which people meet them."""

from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.experiments import Experiments
from nvtrader_pipelines.service.operations.feedback import Feedback
from nvtrader_pipelines.service.operations.guards import Guards
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies
from nvtrader_pipelines.service.operations.runs import Runs
from nvtrader_pipelines.service.operations.scoreboard import Scoreboard
from nvtrader_pipelines.service.operations.searches import Searches

FAMILIES = (WholeHome, Experiments, Searches, Runs, Guards, Scoreboard, Policies, Plans, Accounts, Feedback)
