"""Every document of `bad_specs.yaml` is refused with its message: where, what was found, what is allowed."""

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from nvtrader_pipelines.service.documents.catalogue import json_schema_of
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.specs import read_experiment

CASES = yaml.safe_load(Path(__file__).with_name("bad_specs.yaml").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(json_schema_of("experiment"), format_checker=Draft202012Validator.FORMAT_CHECKER)
NAMED = pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])


def written(case, folder):
    path = folder / "a.yaml"
    path.write_text(case["document"], encoding="utf-8")
    return path


@NAMED
def test_a_bad_spec_is_refused_in_a_sentence_with_path_found_and_allowed(case, tmp_path):
    with pytest.raises(StorageError) as caught:
        read_experiment(written(case, tmp_path))
    said = ".*".join(re.escape(part) for part in case["message"].split("…"))
    assert re.fullmatch(f"a\\.yaml is not a valid experiment: {said}", str(caught.value)), str(caught.value)


@NAMED
def test_the_schema_refuses_what_a_schema_can(case, tmp_path):
    content = json.loads(json.dumps(read_document(written(case, tmp_path)), default=str))
    assert VALIDATOR.is_valid(content) == (case["schema"] == "accepts")


def test_there_are_forty_bad_specs_or_more_and_every_one_differs():
    assert len(CASES) >= 40
    assert len({case["document"] for case in CASES}) == len({case["case"] for case in CASES}) == len(CASES)
