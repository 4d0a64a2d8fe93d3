"""Colors, line styles and text size of all figures."""

from matplotlib.colors import LinearSegmentedColormap

# Okabe & Ito's palette: distinct under every common color blindness.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT_GREY = "#7F7F7F", "#E3E3E3"
OTHERS_GREY = "#B0B0B0"
LOSS_TO_GAIN = LinearSegmentedColormap.from_list("loss_to_gain", [VERMILION, "#FFFFFF", BLUE])
_INK = {YELLOW: "#8A7F00", LIGHT_GREY: GREY, OTHERS_GREY: GREY, SKY: "#2A7FB0", ORANGE: "#B07A00", PURPLE: "#A84F80"}
LINE_STYLES: tuple[tuple[str, str], ...] = (
    (ORANGE, "-"),
    (GREEN, "--"),
    (VERMILION, "-."),
    (PURPLE, ":"),
    (BLACK, "--"),
    (SKY, "-."),
)
TEXT = 14  # points


def ink(color: str) -> str:
    """Color for text on white: darker where it would be hard to read."""
    return _INK.get(color, color)
