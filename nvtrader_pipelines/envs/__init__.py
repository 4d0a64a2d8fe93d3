"""The portfolio environment: dynamics, observations, actions, rewards, and its scalar and batched shells."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

LIBRARY = "gymnasium"


def register_environments() -> None:
    """Register the environments as soon as Gymnasium is imported; the package asks for it when it is imported itself.

    Gymnasium has no plugins that it would find, and takes a fifth of a second, which a command that stops trading
    does not have.
    """
    if LIBRARY in sys.modules:
        _register()
    elif not any(isinstance(finder, _Registering) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Registering())


def _register() -> None:
    from gymnasium.envs.registration import register

    register(
        id="nvtrader/PortfolioCVaR-v0",
        entry_point="nvtrader_pipelines.envs.portfolio_env:PortfolioEnv",
    )


class _Registering(MetaPathFinder):
    """Finds Gymnasium as the other finders do, and registers the environments at the end of its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's, if it is Gymnasium itself."""
        if fullname != LIBRARY:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def then_register(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = then_register
        return spec
