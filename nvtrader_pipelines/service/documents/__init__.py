"""Documents that `--json`, the report and programs share."""
