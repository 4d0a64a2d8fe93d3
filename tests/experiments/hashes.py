"""The hashes of the shipped experiments and of every component's defaults, as they are and as they were accepted."""

import json
from pathlib import Path

from nvtrader_pipelines.components.component import content_hash, kind_of, members
from nvtrader_pipelines.service.documents.catalogue import FAMILIES
from nvtrader_pipelines.storage.specs import read_experiment

SHIPPED = sorted((Path(__file__).parents[2] / "data" / "experiments").glob("*.yaml"))
ACCEPTED = Path(__file__).with_name("hashes.json")
HOW_TO_ACCEPT = (
    "these hashes changed, so runs recorded under the old ones are of other experiments now: a default, a field or a "
    "shipped file changed. If that is meant, say so in CHANGELOG.md and run: python -m tests.experiments.hashes"
)


def current():
    """Every hash by its name."""
    experiments = {path.stem: read_experiment(path).spec_hash for path in SHIPPED}
    defaults = {
        f"{family}/{kind_of(member)}": content_hash(member())
        for family, union in FAMILIES.items()
        for member in members(union)
    }
    return {"experiments": experiments, "defaults": defaults}


def accepted():
    """Every hash as it was when it was last accepted."""
    return json.loads(ACCEPTED.read_text())


if __name__ == "__main__":
    ACCEPTED.write_text(json.dumps(current(), indent=1, sort_keys=True) + "\n")
