"""Plain MLP on any observation."""

from typing import Literal

from nvtrader_pipelines.policies.backbones.backbone import ExtractorBackbone


class MlpBackbone(ExtractorBackbone):
    """Separate actor and critic MLPs with tanh, on any observation."""

    kind: Literal["mlp"] = "mlp"
