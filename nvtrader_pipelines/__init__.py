"""NVTrader pipelines: market prices to reinforcement-learning portfolio policies that can be trusted."""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nvtrader_pipelines.execution.plan_decision import Approve, Equal, Override, Reject, Skip
    from nvtrader_pipelines.experiments.spec import ExperimentSpec
    from nvtrader_pipelines.orchestration import PipelineError
    from nvtrader_pipelines.research.search_settings import SearchSettings
    from nvtrader_pipelines.service.python_api import Pipeline
    from nvtrader_pipelines.storage.errors import StorageError

__all__ = [
    "Approve",
    "Equal",
    "ExperimentSpec",
    "Override",
    "Pipeline",
    "PipelineError",
    "Reject",
    "SearchSettings",
    "Skip",
    "StorageError",
]
_MODULES = {  # imported on first use: importing the package costs nothing
    **dict.fromkeys(("Approve", "Equal", "Override", "Reject", "Skip"), "execution.plan_decision"),
    "ExperimentSpec": "experiments.spec",
    "Pipeline": "service.python_api",
    "PipelineError": "orchestration",
    "SearchSettings": "research.search_settings",
    "StorageError": "storage.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Public names, imported or not."""
    return sorted({*globals(), *__all__})


class _GymnasiumFinder:
    """Finder that registers the environment after Gymnasium, whose import would cost commands 0.1 s."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                import_module(f"{__name__}.envs")

            spec.loader.exec_module = execute_and_register
        return spec


if "gymnasium" in sys.modules:
    import_module(f"{__name__}.envs")
else:
    sys.meta_path.insert(0, _GymnasiumFinder())
