"""Use cases, each once: command line, routes and Python call them."""
