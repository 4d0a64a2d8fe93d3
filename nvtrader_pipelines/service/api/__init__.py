"""REST service: the use cases of the command line over HTTP, safe by default."""
