"""The draft: what the files say, its faults, and the error made of them."""

import json

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources.draft import _SHOWN_FAULTS, ConfigDraft, Fault, RawParam, refuse
from lodesman.decide.resources.load import build
from lodesman.decide.resources.model import (
    FilePosition,
    Node,
    ResourceTree,
    as_scalars,
    as_text,
    fold,
    without_repetition,
)
from lodesman.wire.nodes import QueueId


def at(line, file="f.cfg", section="/S"):
    return FilePosition(file=file, section=section, line=line)


def test_a_fault_has_its_position():
    assert str(Fault(message="wrong", source=at(3))) == "f.cfg, line 3, /S: wrong"
    assert str(Fault(message="wrong", source=at(0, section=""))) == "f.cfg: wrong"
    assert str(Fault(message="wrong", source=FilePosition())) == "wrong"
    assert Fault(message="wrong", source=at(3)).as_dict() == {
        "message": "wrong",
        "source": "f.cfg",
        "section": "/S",
        "line": 3,
    }


def test_faults_come_in_the_order_of_the_files():
    faults = [
        Fault(message=str(line), source=at(line, file)) for file, line in (("b", 1), ("a", 9), ("a", 2))
    ]
    error = refuse(faults)
    assert [(fault["source"], fault["line"]) for fault in error.data["faults"]] == [
        ("a", 2),
        ("a", 9),
        ("b", 1),
    ]
    assert (error.data["source"], error.data["line"], error.data["section"]) == ("a", 2, "/S")
    json.dumps(error.as_dict())


def test_one_fault_is_one_sentence():
    error = refuse([Fault(message="m1", source=at(1))])
    assert error.message == "f.cfg, line 1, /S: m1."


def test_a_fault_that_is_found_twice_is_reported_once():
    again = Fault(message="m1", source=at(1))
    assert len(refuse([again, again]).data["faults"]) == 1


@pytest.mark.parametrize(("count", "head"), [(2, "has 2 faults:"), (3, "has 3 faults:")])
def test_few_faults_are_shown_in_full(count, head):
    error = refuse(Fault(message=f"m{n}", source=at(n)) for n in range(1, count + 1))
    assert head in error.message
    assert error.message.count("\n- ") == count
    assert "more" not in error.message


def test_of_many_faults_the_first_are_shown_and_all_are_in_the_data():
    error = refuse(Fault(message=f"m{n}", source=at(n)) for n in range(1, 101))
    assert error.message.count("\n- ") == _SHOWN_FAULTS + 1
    assert error.message.endswith(f"- and {100 - _SHOWN_FAULTS} more")
    assert len(error.data["faults"]) == 100


def test_a_second_value_is_a_fault_that_names_the_first():
    draft = ConfigDraft()
    node = draft.node(draft.sites, "S", at(1))
    draft.put(node.layers[""], RawParam(name="Memory", value=1, source=at(2)))
    draft.put(node.layers["vo"], RawParam(name="Memory", value=2, source=at(3)))
    draft.put(node.layers[""], RawParam(name="MEMORY", value=3, source=at(4)))
    with pytest.raises(InvalidConfig) as caught:
        build(draft)
    (fault,) = caught.value.data["faults"]
    assert fault["line"] == 4
    assert fault["message"] == "MEMORY is given twice: 3 here, and f.cfg, line 2, /S: Memory = 1"
    assert node.layers[""]["memory"].value == 1


@pytest.mark.parametrize(
    ("first", "again", "alike"),
    [
        (4096, "4 GB", True),
        ("4096 MB", 4096.0, True),
        (4096, 4097, False),
        ("4 GB", "lots", False),
    ],
)
def test_what_is_given_twice_must_say_the_same_as_its_type_reads_it(first, again, alike):
    draft = ConfigDraft()
    node = draft.node(draft.sites, "S", at(1))
    draft.put(node.layers[""], RawParam(name="Memory", value=first, source=at(2)))
    draft.put(node.layers[""], RawParam(name="Memory", value=again, source=at(9, "g.cfg")))
    if alike:
        assert build(draft).tree.sites["S"].params == {"Memory": 4096}
        return
    with pytest.raises(InvalidConfig, match="Memory is given twice"):
        build(draft)


@pytest.mark.parametrize(("first", "again"), [(1, True), ("1", 1), ("a", ["a"]), (["a", "b"], ["b", "a"])])
def test_an_undeclared_value_is_the_same_only_if_it_is(first, again):
    draft = ConfigDraft()
    node = draft.node(draft.sites, "S", at(1))
    for line, value in enumerate((first, again), 2):
        draft.put(node.layers[""], RawParam(name="P", value=value, source=at(line)))
    with pytest.raises(InvalidConfig, match="P is given twice"):
        build(draft)


def test_long_values_are_cut_in_conflicts():
    draft = ConfigDraft()
    node = draft.node(draft.sites, "S", at(1))
    for line, value in enumerate(("x" * 500, ["y" * 500]), 2):
        draft.put(node.layers[""], RawParam(name="P", value=value, source=at(line)))
    with pytest.raises(InvalidConfig) as caught:
        build(draft)
    assert len(caught.value.data["faults"][0]["message"]) < 300


def test_two_files_may_speak_of_one_node():
    draft = ConfigDraft()
    first = draft.node(draft.sites, "S", at(1))
    assert draft.node(draft.sites, "S", at(9, "g.cfg")) is first
    assert first.source == at(1)
    assert draft.faults == []


def test_an_empty_name_is_a_fault():
    draft = ConfigDraft()
    draft.node(draft.sites, " ", at(1))
    assert [fault.message for fault in draft.faults] == ["a name is empty"]


def test_notices_do_not_stop_a_configuration():
    draft = ConfigDraft(["b", "a"])
    draft.notice("odd", at(1))
    config = build(draft)
    assert [notice.message for notice in config.notices] == ["odd"]
    assert config.vos == ("b", "a")


def test_a_built_configuration_cannot_be_changed():
    draft = ConfigDraft()
    draft.put(draft.node(draft.sites, "S", at(1)).layers[""], RawParam(name="P", value=1, source=at(2)))
    config = build(draft)
    with pytest.raises(TypeError):
        config.tree.sites["T"] = config.tree.sites["S"]
    with pytest.raises(TypeError):
        config.tree.sites["S"].params["P"] = 2


# --- the model -------------------------------------------------------------------------------------


def test_the_tree_knows_its_queues_in_order():
    queues = {name: Node(name=name) for name in ("z", "a")}
    tree = ResourceTree(sites={"S": Node(name="S", children={"c": Node(name="c", children=queues)})})
    assert list(tree.queue_ids()) == [QueueId("S", "c", "z"), QueueId("S", "c", "a")]
    assert tree.find(QueueId("S", "c", "a"))
    for wrong in (("X", "c", "a"), ("S", "x", "a"), ("S", "c", "x")):
        assert not tree.find(QueueId(*wrong))


def test_the_identity_of_a_queue_is_a_triple():
    assert QueueId("a/b", "c", "d") != QueueId("a", "b/c", "d")
    assert QueueId("a", "b", "c")._asdict() == {"site": "a", "ce": "b", "queue": "c"}


def test_repetitions():
    assert without_repetition([2, "a", 2.0, True, 1, 1.0, "a", "1"]) == (2.0, "a", True, 1.0, "1")
    assert [type(item) for item in without_repetition([True, 1])] == [bool, int]


def test_small_conversions():
    assert as_scalars("a") == ("a",)
    assert as_scalars(("a", 1)) == ("a", 1)
    assert [as_text(value) for value in (4.0, 4, 4.5, True, False, " x ")] == [
        "4",
        "4",
        "4.5",
        "true",
        "false",
        "x",
    ]
    assert fold(" SoftwareTag ") == "softwaretag"
