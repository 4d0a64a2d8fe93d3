from datetime import date

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.storage.documents import DocumentLoader, merge_documents, read_document, resolve_document
from nvtrader_pipelines.storage.errors import StorageError

DOCUMENTS = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.integers() | st.text(max_size=2),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["kind", "x", "y"]), inner),
        max_leaves=6,
    ),
)


def write(folder, **texts):
    """Files of one folder; gives the first one's path."""
    paths = [folder / f"{name}.yaml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths[0]


def refusal(path):
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
def test_numbers_with_an_exponent_are_numbers_and_days_that_are_none_are_text(text, value):
    assert yaml.load(text, DocumentLoader) == value


def test_a_file_that_extends_none_is_read_as_it_is(tmp_path):
    path = write(tmp_path, a="{name: a, x: {y: 1}}")
    assert resolve_document(path) == read_document(path) == {"name": "a", "x": {"y": 1}}


def test_a_file_takes_over_what_it_does_not_change_but_not_the_name(tmp_path):
    path = write(tmp_path, a="{extends: b.yaml, x: {y: 2}, l: [3]}", b="{name: b, x: {y: 1, z: 1}, l: [1, 2], k: null}")
    assert resolve_document(path) == {"x": {"y": 2, "z": 1}, "l": [3], "k": None}


def test_a_component_of_another_kind_replaces_the_old_one_whole(tmp_path):
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


def test_a_chain_of_files_in_several_folders_is_followed_from_each_files_own_folder(tmp_path):
    write(tmp_path, root="{x: 1, y: 1, z: 1}")
    write(tmp_path / "bases", middle="{extends: ../root.yaml, y: 2, z: 2}")
    path = write(tmp_path / "sweep", a="{extends: ../bases/middle.yaml, name: a, z: 3}")
    assert resolve_document(path) == {"name": "a", "x": 1, "y": 2, "z": 3}


def test_null_replaces_a_mapping(tmp_path):
    assert resolve_document(write(tmp_path, a="{extends: b.yaml, x: null}", b="{x: {y: 1}}")) == {"x": None}


def test_files_that_extend_each_other_are_refused_with_the_circle(tmp_path):
    path = write(tmp_path, a="extends: b.yaml", b="extends: c.yaml", c="extends: b.yaml")
    assert refusal(path).startswith("b.yaml extends c.yaml extends b.yaml: no file may extend itself in the end")


def test_a_file_that_extends_itself_is_refused(tmp_path):
    assert refusal(write(tmp_path, a="extends: ./a.yaml")).startswith("a.yaml extends a.yaml")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "extends: gone.yaml",
            "a.yaml extends gone.yaml, but .*gone.yaml is no file; name one from this file's folder",
        ),
        ("extends: [b.yaml]", r"extends must be the path of a file from this file's folder, found \['b.yaml'\]"),
        ("extends: null", "extends must be the path of a file from this file's folder, found None"),
    ],
)
def test_what_cannot_be_extended_is_said(tmp_path, text, why):
    with pytest.raises(StorageError, match=why):
        resolve_document(write(tmp_path, a=text))


def test_a_base_that_is_no_yaml_is_named(tmp_path):
    assert refusal(write(tmp_path, a="extends: b.yaml", b="[")).startswith("b.yaml is no YAML")


def test_a_file_that_is_not_there_is_said(tmp_path):
    assert "gone.yaml cannot be read: No such file" in refusal(tmp_path / "gone.yaml")


@given(base=DOCUMENTS, changes=DOCUMENTS)
def test_changes_win_the_rest_stays_and_nothing_is_edited_in_place(base, changes):
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


@pytest.mark.parametrize(
    "text", ["kind: " + "[" * 5_000, "a: !!int x", "a: !!bool maybe", "a: !!timestamp x", "a: !!float x"]
)
def test_text_that_breaks_the_parser_is_refused_by_its_file(tmp_path, text):
    with pytest.raises(StorageError, match=r"x\.yaml is"):
        read_document(write(tmp_path, x=text))
