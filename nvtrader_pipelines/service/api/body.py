"""Types that bodies of requests share."""

from nvtrader_pipelines.components.component import Component


class Body(Component):
    """Body of a request, strict as the components of an experiment."""
