"""Documents shared by `--json` output, the report and other programs."""
