from datetime import date

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.desk.bot_files import read_bot
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.notifications.channels import read_channels
from nvtrader_pipelines.service.cli.plan_commands import read_weights
from nvtrader_pipelines.storage.compliance_files import read_limits
from nvtrader_pipelines.storage.documents import (
    DocumentLoader,
    merge_documents,
    parse_document,
    read_document,
    resolve_document,
    validate_document,
)
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.llm_files import read_endpoint
from nvtrader_pipelines.storage.specs import read_entrant, read_experiment, read_market

DOCUMENTS = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.integers() | st.text(max_size=2),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["kind", "x", "y"]), inner),
        max_leaves=6,
    ),
)


def write(folder, **texts):
    """Write files into a folder and return the path of the first."""
    paths = [folder / f"{name}.yaml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths[0]


def refusal_of(path):
    with pytest.raises(StorageError) as caught:
        resolve_document(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        (".5e1", 5.0),
        ("-1.e+2", -100.0),
        ("1.5", 1.5),
        ("12", 12),
        ("e3", "e3"),
        ("1e", "1e"),
        ("'1e-3'", "1e-3"),
        ("2001-01-02", date(2001, 1, 2)),
        ("2001-13-02", "2001-13-02"),
    ],
)
def test_loader_reads_exponents_as_numbers_and_invalid_days_as_text(text, value):
    assert yaml.load(text, DocumentLoader) == value


def test_document_without_base_is_read_unchanged(tmp_path):
    path = write(tmp_path, a="{name: a, x: {y: 1}}")
    assert resolve_document(path) == read_document(path) == {"name": "a", "x": {"y": 1}}


def test_document_inherits_unchanged_fields_but_not_the_name(tmp_path):
    path = write(tmp_path, a="{extends: b.yaml, x: {y: 2}, l: [3]}", b="{name: b, x: {y: 1, z: 1}, l: [1, 2], k: null}")
    assert resolve_document(path) == {"x": {"y": 2, "z": 1}, "l": [3], "k": None}


def test_component_of_another_kind_replaces_the_base_entirely(tmp_path):
    path = write(
        tmp_path,
        a="{extends: b.yaml, agent: {kind: sac, tau: 1}, action: {kind: residual, tilt: 2}, splitter: {purge_size: 1}}",
        b="{agent: {kind: ppo, gamma: 0.5}, action: {kind: residual, bound: 1}, splitter: {kind: holdout}}",
    )
    assert resolve_document(path) == {
        "agent": {"kind": "sac", "tau": 1},
        "action": {"kind": "residual", "bound": 1, "tilt": 2},
        "splitter": {"kind": "holdout", "purge_size": 1},
    }


def test_bases_are_found_relative_to_the_extending_file(tmp_path):
    write(tmp_path, root="{x: 1, y: 1, z: 1}")
    write(tmp_path / "bases", middle="{extends: ../root.yaml, y: 2, z: 2}")
    path = write(tmp_path / "sweep", a="{extends: ../bases/middle.yaml, name: a, z: 3}")
    assert resolve_document(path) == {"name": "a", "x": 1, "y": 2, "z": 3}


def test_null_replaces_a_mapping(tmp_path):
    assert resolve_document(write(tmp_path, a="{extends: b.yaml, x: null}", b="{x: {y: 1}}")) == {"x": None}


def test_files_that_extend_each_other_are_refused_with_the_circle(tmp_path):
    path = write(tmp_path, a="extends: b.yaml", b="extends: c.yaml", c="extends: b.yaml")
    assert refusal_of(path).startswith("b.yaml extends c.yaml extends b.yaml: files must not extend each other")


def test_file_that_extends_itself_is_refused(tmp_path):
    assert refusal_of(write(tmp_path, a="extends: ./a.yaml")).startswith("a.yaml extends a.yaml")


@pytest.mark.parametrize("text", ["extends: missing.yaml", "extends: [b.yaml]", "extends: null"])
def test_invalid_base_is_refused(tmp_path, text):
    with pytest.raises(StorageError):
        resolve_document(write(tmp_path, a=text))


def test_base_that_is_no_yaml_is_refused_with_its_name(tmp_path):
    assert refusal_of(write(tmp_path, a="extends: b.yaml", b="[")).startswith("b.yaml is not valid YAML")


def test_missing_file_is_refused(tmp_path):
    assert "missing.yaml cannot be read: No such file" in refusal_of(tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("base", "kind"), [("grouped_ppo", "ppo_inhouse"), ("ppo_inhouse", "grouped_ppo"), ("ppo", "ppo")]
)
def test_alias_extends_the_component_of_its_kind(base, kind):
    merged = merge_documents({"agent": {"kind": base, "gamma": 0.9}}, {"agent": {"kind": kind, "n_epochs": 2}})
    assert merged == {"agent": {"kind": kind, "gamma": 0.9, "n_epochs": 2}}


def test_component_of_another_kind_is_replaced():
    merged = merge_documents({"agent": {"kind": "a2c", "gamma": 0.9}}, {"agent": {"kind": "ppo_inhouse"}})
    assert merged == {"agent": {"kind": "ppo_inhouse"}}


@pytest.mark.slow
@given(base=DOCUMENTS, changes=DOCUMENTS)
def test_merge_documents_applies_changes_without_mutation(base, changes):
    before = repr((base, changes))
    result = merge_documents(base, changes)
    assert repr((base, changes)) == before
    assert result.keys() == base.keys() | changes.keys()
    for name, value in result.items():
        if name not in changes:
            assert value == base[name]
        elif not (isinstance(changes[name], dict) and isinstance(base.get(name), dict)):
            assert value == changes[name]
    assert merge_documents(result, changes) == result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "must hold a mapping, in lines of `field: value`, but it is empty"),
        (b"- a\n- b\n", "but it holds a list"),
        (b"just words", "but it holds only 'just words'"),
        (b"42", "but it holds only 42"),
        (b"a: 1\nb: [1,\nc: 2\n", "is not valid YAML: line 4, column 1: "),
        (b"a: 1\n\tb: 2\n", "is not valid YAML: line 2, column 1: "),
        (b"a: 1\nb: 2\na: 3\n", "is not valid YAML: line 3, column 1: the key 'a' occurs twice"),
        (b"a: 1\n[1]: 2\n", "is not valid YAML: line 2, column 1: a key must be text"),
        (b"a: 1\n---\nb: 2", "line 2, column 1: a file must hold one document"),
        (b"a: !thing 1", "line 1, column 4: there is no tag '!thing'"),
        (b"a: [1, 2", "but got the stream end"),
        (b"a: \xff\xfe", "it must be text in UTF-8"),
        (b"a: \x00", "it must be text in UTF-8"),
        (b"a: !!int x", "a value does not fit its tag, such as !!int, or is a number of over 4,300 digits; mend it"),
        (b"a: " + b"[" * 5_000, "it is nested too deeply"),
    ],
)
def test_refused_text_is_described_by_line_without_words_of_python(tmp_path, content, found):
    (tmp_path / "x.yaml").write_bytes(content)
    with pytest.raises(StorageError) as caught:
        read_document(tmp_path / "x.yaml")
    assert str(caught.value).startswith("x.yaml ")
    assert found in str(caught.value)
    for word in ("NoneType", "<", "unicode", "str", "dict", "codec", "()", "constructor"):
        assert word not in str(caught.value).replace("`", "").replace("stream", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["kind: " + "[" * 5_000, "a: !!int x", "a: !!bool maybe", "a: !!timestamp x", "a: !!float x"],
)
def test_text_that_breaks_the_parser_is_refused_with_the_file(tmp_path, text):
    with pytest.raises(StorageError, match=r"x\.yaml"):
        read_document(write(tmp_path, x=text))


@pytest.mark.parametrize("n_repeats", [2, 10])
def test_merges_that_repeat_without_bound_are_refused(n_repeats):
    lines = (f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * n_repeats)}]}}" for n in range(1, 30))
    with pytest.raises(StorageError):
        parse_document("\n".join(["a0: &a0 {a: 1, b: 2}", *lines]).encode(), "the body")


def test_merges_are_read_as_pyyaml_reads_them():
    text = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, y: 3}\nc: {<<: [*b, {z: 4}], x: 0}\n"
    assert parse_document(text.encode(), "the body") == yaml.safe_load(text)


SECTOR_CAP = "{kind: sector_cap, sectors: {WRITTEN: oil}}, {kind: position_cap}, {kind: gross_exposure}"
READ_OTHERWISE = ["0700", "000001", "ON", "NO", "yes", "12:30", "1e5", "1_000", "0x1F", ".5", "700", "2020-01-02"]
DOORS = {
    "experiment": ("data/experiments/a.yaml", "name: a\nmarket: {symbols: [AAPL, WRITTEN]}", read_experiment),
    "sweep": ("data/experiments/a.yaml", "extends: b.yaml\nname: a\nmarket: {symbols: [WRITTEN]}", read_experiment),
    "base": ("data/experiments/a.yaml", "extends: w.yaml\nname: a\nagent: {kind: equal_weight}", read_experiment),
    "keys": ("data/experiments/a.yaml", f"name: a\npipeline: {{limits: [{SECTOR_CAP}]}}", read_experiment),
    "market": ("data/market.yaml", "sources: [{kind: landing, name: a, calendar: WRITTEN}]", read_market),
    "entrant": ("data/entrants/a.yaml", "kind: baseline\ndescription: WRITTEN", read_entrant),
    "account": ("data/accounts/paper.yaml", "kind: alpaca\nbase_url: WRITTEN", read_account),
    "bot": ("data/bots/a.yaml", "policy: WRITTEN\naccount: paper", lambda home: read_bot(home, "a")),
    "compliance": ("data/compliance/limits.yaml", "restricted: [AAPL, WRITTEN]", read_limits),
    "endpoint": ("data/llm.yaml", "base_url: http://localhost:1/v1\nmodel: WRITTEN", read_endpoint),
    "channels": ("data/notifications.yaml", "channels: {a: {kinds: [WRITTEN]}}", read_channels),
    "weights": ("weights.yaml", "AAPL: 0.1\nWRITTEN: 0.2", read_weights),
}
TAKES_A_PATH = {read_experiment, read_entrant, read_weights}


@pytest.mark.parametrize(("file", "text", "read"), DOORS.values(), ids=DOORS)
def test_door_shows_text_that_yaml_reads_otherwise_as_written(tmp_path, file, text, read):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "b.yaml").write_text("market: {symbols: [0800]}")
    for written in READ_OTHERWISE:
        (path.parent / "w.yaml").write_text(f"market: {{symbols: [{written}]}}")
        path.write_text(text.replace("WRITTEN", written))
        with pytest.raises((StorageError, ValueError), match=f"'{written}'"):
            read(path if read in TAKES_A_PATH else Home.at(tmp_path))


@pytest.mark.parametrize("written", READ_OTHERWISE)
def test_value_whose_text_is_not_known_is_quoted_alike(written):
    content = yaml.load(f"name: a\nmarket: {{symbols: [{written}]}}", DocumentLoader)
    with pytest.raises(StorageError):
        validate_document(content, ExperimentSpec, "the content is not valid")


def test_quoted_text_is_read_as_written():
    symbols = parse_document(str({"symbols": READ_OTHERWISE}).encode(), "a.yaml")["symbols"]
    assert symbols == READ_OTHERWISE
