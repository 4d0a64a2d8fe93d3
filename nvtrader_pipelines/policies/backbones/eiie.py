"""Convolutions over each name's window of returns, the same for every name."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import FiniteFloat, PositiveInt

from nvtrader_pipelines.policies.backbones.backbone import NameScoresBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.eiie_network import EiiePolicy


class EiieConvBackbone(NameScoresBackbone):
    """Convolutions that score each name from its own window of returns and its held weight (EIIE).

    A convolution over three sessions, one over the rest of the window, and a 1x1 of its map and the held weight, which
    replaces the paper's memory of portfolio vectors. The score of cash is a learned number. Features are not read.

    Source: Jiang, Xu & Liang (2017); widths and the score of cash are those of TradeMaster.
    """

    needs_window: ClassVar[bool] = True
    observations: ClassVar[tuple[str, ...]] = ("lookback", "regime")

    kind: Literal["eiie_conv"] = "eiie_conv"
    maps: PositiveInt = 32  # of the first convolution
    cash_bias: FiniteFloat = 1.0  # score of cash before training
    critic_hidden: PositiveInt = 32

    def policy_class(self) -> "type[EiiePolicy]":
        """SB3 policy class, whose network has the fields as sizes."""
        from nvtrader_pipelines.policies.networks.eiie_network import EiiePolicy

        return EiiePolicy
