"""Job classes in the store: what is written is what is read, on every database."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kits.jobclass_kit import class_of

from lodesman.base.errors import ServerFault
from lodesman.languages.jobclass import read_class, write_class
from lodesman.server.store.job_classes import (
    ClassChange,
    class_changes,
    classes_changed_by,
    drop_class,
    job_classes,
    put_class,
    switch_class,
)

APP = class_of("Größe", variants="default,a,b", N="S,[{~}a=T]", l_hard="{+}{~}h_rt=60")


def put(store, one, by):
    store.do(put_class, one, write_class(one), by)


def read(db):
    found = {}
    for one in job_classes(db):
        said = read_class(one.text, canonical=lambda _, key: key)
        assert said.job_class
        found[one.name] = replace(said.job_class, disabled=one.disabled, revision=one.revision)
    return found


def test_classes_come_back_by_name(store):
    other = replace(class_of("app", N="'; --"), revision=7)
    switched = replace(APP, disabled=frozenset({"a", "b"}), revision=2)
    put(store, switched, "ann")
    put(store, other, "bob")
    assert list(read(store.db)) == ["Größe", "app"]  # by their bytes: capitals first
    assert read(store.db) == {"Größe": switched, "app": other}


def test_a_change_takes_the_place_of_what_was_there(store):
    put(store, replace(APP, disabled=frozenset({"a"}), revision=1), "ann")
    store.now += 5.5
    changed = replace(class_of("Größe", N="X"), revision=2)
    put(store, changed, "bob")
    assert read(store.db) == {"Größe": changed}
    assert class_changes(store.db) == {"Größe": ClassChange(store.now, "bob")}
    store.do(drop_class, "Größe")
    assert (job_classes(store.db), class_changes(store.db)) == ([], {})
    with pytest.raises(ServerFault):
        store.do(drop_class, "never there")


def test_the_classes_of_a_user_are_those_the_user_changed_last(store):
    for name, by in (("a", "ann"), ("b", "ann"), ("c", "bob"), ("b", "bob")):
        put(store, class_of(name, owner="ann"), by)
    assert store.do(classes_changed_by, "ann") == {"a"}
    assert store.do(classes_changed_by, "bob") == {"b", "c"}
    assert store.do(classes_changed_by, "nobody") == set()


def test_switching_changes_nothing_but_what_is_disabled(store):
    put(store, replace(APP, revision=4), "ann")
    put(store, class_of("app"), "ann")
    store.now += 1.0
    store.do(switch_class, APP.name, {"b", "a"}, "bob")
    assert read(store.db)[APP.name] == replace(APP, revision=4, disabled=frozenset({"a", "b"}))
    assert class_changes(store.db)[APP.name] == ClassChange(store.now, "bob")
    store.do(switch_class, APP.name, set(), "bob")
    assert read(store.db) == {APP.name: replace(APP, revision=4), "app": class_of("app")}
