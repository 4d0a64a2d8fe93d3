"""Page `/continuous-rl.html`: the state of a home in one place, kept current while it is open."""
