"""Settings shared by every test; being inside the package `tests`, it also puts the repository on the path."""

from hypothesis import settings

settings.register_profile("shared_machine", deadline=None)
settings.load_profile("shared_machine")
