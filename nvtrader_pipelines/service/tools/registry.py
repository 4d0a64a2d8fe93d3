"""Tools by name: the operation that each calls, and what must be allowed for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, create_model

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.service.operations.alphas import Alphas
from nvtrader_pipelines.service.operations.corpora import Corpora
from nvtrader_pipelines.service.operations.data import Data
from nvtrader_pipelines.service.operations.experiments import Experiments
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.service.operations.operation import Family, Operation, Parameter, operations_of
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.runs import Runs
from nvtrader_pipelines.service.operations.scoreboard import Scoreboard
from nvtrader_pipelines.service.operations.searches import Searches
from nvtrader_pipelines.service.operations.workflows import Workflows

Permission = Literal["writes", "trades"]
WRITES: frozenset[Permission] = frozenset({"writes"})
TRADES: frozenset[Permission] = frozenset({"trades"})
INDEX = Path(__file__).with_name("tools.json")  # text and JSON Schemas by tool, of scripts/index_commands.py


@dataclass(frozen=True, eq=False)
class Tool:
    """Operation as a tool."""

    family: type[Family]
    method: str
    needs: frozenset[Permission] = frozenset()  # it reads only without any
    is_urgent: bool = False  # called before the call is recorded, which may fail
    names: Mapping[str, str] = field(default_factory=dict)  # parameters by the names of their arguments, if others

    @property
    def operation(self) -> Operation:
        """Operation that it calls."""
        return operations_of(self.family)[self.method]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters by the names of their arguments; files of this machine are none."""
        argument = {parameter: name for name, parameter in self.names.items()}
        return {argument.get(one.name, one.name): one for one in self.operation.parameters if not one.is_local}

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """Model of the arguments, which refuses unknown ones."""
        fields: Any = {name: self._field(parameter) for name, parameter in self.parameters.items()}
        return create_model("Arguments", __base__=Component, **fields)

    def _field(self, parameter: Parameter) -> tuple[Any, Any]:
        if not self.operation.is_long or not hasattr(parameter.kind, "model_fields"):
            return parameter.field
        from nvtrader_pipelines.service.api.launches import LAUNCHES

        return LAUNCHES[self.operation.route].__annotations__[parameter.name], ...  # what Dagster takes

    @cached_property
    def result(self) -> type[BaseModel]:
        """Document of the answer; rows, and what may be null, are fields of one."""
        if self.operation.is_long:
            from nvtrader_pipelines.service.api.launches import Launched

            return Launched
        returns: Any = self.operation.returns
        if self.operation.is_frame:
            fields: Any = {"rows": (tuple[self.operation.row, ...], ...)}
            return create_model("Rows", __base__=Document, **fields)
        if isinstance(returns, type) and issubclass(returns, BaseModel):
            return returns
        return create_model("Result", __base__=Document, result=(returns, ...))


TOOLS: Mapping[str, Tool] = {
    "data.rl.list": Tool(Runs, "list"),
    "data.rl.describe": Tool(Data, "describe", names={"rl_run_id": "run"}),
    "data.rl.searches": Tool(Searches, "sessions"),
    "data.rl.search_status": Tool(Searches, "status"),
    "data.rl.search_journal": Tool(Searches, "journal"),
    "data.backtests.list": Tool(Scoreboard, "show"),
    "data.backtests.describe": Tool(Runs, "show"),
    "data.alphas.list": Tool(Alphas, "list"),
    "data.brokers.accounts": Tool(Data, "accounts"),
    "data.brokers.orders": Tool(Data, "orders"),
    "data.brokers.plans": Tool(Plans, "list"),
    "data.brokers.plan": Tool(Plans, "show"),
    "data.corpora.list": Tool(Corpora, "list"),
    "data.corpora.search": Tool(Corpora, "search"),
    "data.iceberg.tables": Tool(WholeHome, "tables"),
    "data.iceberg.read_snapshot": Tool(Data, "read_snapshot"),
    "data.sql": Tool(Data, "query"),
    "data.workflows.list": Tool(Workflows, "list"),
    "data.alphas.new": Tool(Alphas, "new", WRITES),
    "data.alphas.evaluate": Tool(Alphas, "evaluate", WRITES),
    "data.rl.train": Tool(Experiments, "train", WRITES),
    "data.rl.replay": Tool(Runs, "replay", WRITES),
    "data.rl.annotate": Tool(Runs, "annotate", WRITES),
    "data.rl.search": Tool(Searches, "start", WRITES),
    "data.rl.stop_search": Tool(Searches, "stop", WRITES),
    "data.brokers.decide": Tool(Plans, "decide", TRADES),
    "data.workflows.run": Tool(Workflows, "run", WRITES | TRADES),  # its steps may trade
    "data.brokers.halt": Tool(WholeHome, "halt", TRADES, is_urgent=True),
}
