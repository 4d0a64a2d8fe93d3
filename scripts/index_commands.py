"""Write the index of the commands, from which the help of `nvtrader` is shown: python -m scripts.index_commands."""

import json

from nvtrader_pipelines.service.cli.help_panels import PANELS
from nvtrader_pipelines.service.cli.lazy_group import INDEX, import_command


def index() -> str:
    """Index as JSON: panel, module and first paragraph of the help of every command, in the order of the panels."""
    entries = {}
    for panel, modules in PANELS.items():
        for name, module in modules.items():
            command = import_command(module, name)
            text = command.help if hasattr(command, "commands") else command.help.partition("\n\n")[0]
            entries[name] = {"panel": panel, "module": module, "help": text}
    return json.dumps(entries, indent=1) + "\n"


if __name__ == "__main__":
    INDEX.write_text(index())
