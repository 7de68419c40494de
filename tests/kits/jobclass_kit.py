"""Job classes for tests: the tables of the reference, classes from a few lines, and strategies for values."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from lodesman.languages.jobclass import ClassSnapshot, JobClass, fresh_template, read_class
from lodesman.languages.jobclass.attributes import BOOLEAN_DEFAULTS, KINDS, AttributeKind
from lodesman.languages.jobclass.specifiers import ByVariant, ClassEntry, ClassList, ClassScalar, ClassValue

DATA = Path(__file__).parents[1] / "data" / "gridengine"
SECOND_NAMES = {"s": "slots", "vf": "virtual_free"}


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table of the reference by the names of its columns; back quotes are taken away."""
    lines = (DATA / f"class-{name}.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]
    heads = cells[0]
    assert all(len(row) == len(heads) for row in cells)
    return [dict(zip(heads, row, strict=True)) for row in cells[2:]]


def canonical(attribute: str, key: str) -> str:
    """As complexes would: `s` and `slots` are one resource; other lists have no second names."""
    return SECOND_NAMES.get(key, key) if attribute.startswith("l_") else key


def read(text: str, **more) -> JobClass:
    """The class of a text without faults."""
    found = read_class(text, canonical=canonical, **more)
    assert found.faults == ()
    assert found.job_class is not None
    return found.job_class


def class_of(
    name: str = "app", variants: str = "NONE", template: JobClass | None = None, **values: str
) -> JobClass:
    """A class with these attributes."""
    lines = [f"jcname {name}", f"variant_list {variants}", *(f"{key} {text}" for key, text in values.items())]
    return read("\n".join(lines), template=template)


def snapshot_of(variant: str = "default", variants: str = "NONE", **values: str) -> ClassSnapshot:
    """What a job of a class with these attributes keeps."""
    return class_of(variants=variants, template=None, **values).snapshot(variant)


# --- strategies -----------------------------------------------------------------------------------

_CHARACTERS = st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters=",[]{}=\\")
TEXTS = st.text(_CHARACTERS, min_size=1, max_size=6).filter(lambda text: text not in ("UNSPECIFIED", "NONE"))
WORDS = st.sampled_from(["a", "b", "s", "slots", "x.q@h", "/tmp/e"])
LETTERS = st.sampled_from(["", "~", "-", "-~"])
LIST_LETTERS = st.sampled_from(["", "+", "+~", "+-", "+-~"])
VARIANTS = ("default", "large", "v-1")


def scalars(name: str) -> st.SearchStrategy[ClassValue]:
    texts = st.sampled_from(["y", "n", "yes", "false"]) if name in BOOLEAN_DEFAULTS else TEXTS
    given = st.builds(lambda text, grants: ClassScalar(text=text, grants=grants), texts, LETTERS)
    opened = st.sampled_from(["", "+", "~", "+~"]).map(lambda grants: ClassScalar(text=None, grants=grants))
    return given | opened


def lists(kind: AttributeKind) -> st.SearchStrategy[ClassValue]:
    def build(found: dict[str, str], letters: list[str], grants: str) -> ClassList:
        keyed = kind is AttributeKind.KEYED
        return ClassList(
            grants=grants,
            entries=tuple(
                ClassEntry(
                    key=key if keyed else str(at), value=value or None if keyed else value or "0", grants=own
                )
                for at, ((key, value), own) in enumerate(zip(found.items(), letters, strict=False))
            ),
        )

    entries = st.dictionaries(WORDS, st.just("") | TEXTS, max_size=4).filter(
        lambda found: not {"s", "slots"} <= found.keys()
    )
    letters = st.lists(LETTERS, min_size=4, max_size=4)
    return st.builds(build, entries, letters, LIST_LETTERS) | LIST_LETTERS.map(
        lambda grants: ClassList(entries=None, grants=grants)
    )


def values_of(name: str) -> st.SearchStrategy[ClassValue]:
    kind = KINDS[name]
    return scalars(name) if kind is AttributeKind.SCALAR else lists(kind)


ATTRIBUTES = ("N", "j", "shell", "pe_range", "CMDARG", "l_hard", "q_hard", "umask")


@st.composite
def attributes(draw) -> dict[str, ByVariant]:
    names = draw(st.sets(st.sampled_from(ATTRIBUTES), min_size=1))
    brackets = st.sets(st.sampled_from(VARIANTS))
    return {
        name: ByVariant(
            base=draw(values_of(name)),
            variants={variant: draw(values_of(name)) for variant in sorted(draw(brackets))},
        )
        for name in sorted(names)
    }


@st.composite
def classes(draw, start: JobClass | None = None) -> JobClass:
    """Any class: every kind of attribute, every specifier, three variants; what is not drawn is as at the start."""
    known = (start or fresh_template()).attributes
    return JobClass(name="app", variants=VARIANTS, attributes={**known, **draw(attributes())})


@st.composite
def jobs(draw, *names: str) -> dict[str, object]:
    """What a finished job may have."""
    texts = st.sampled_from(["y", "n", "S", "X"])
    found: dict[str, object] = {}
    for name in names or ATTRIBUTES:
        kind = KINDS[name]
        if kind is AttributeKind.SCALAR:
            found[name] = draw(texts | st.just(""))
        elif kind is AttributeKind.KEYED:
            found[name] = draw(st.dictionaries(WORDS, st.none() | texts, max_size=3))
        else:
            found[name] = tuple(draw(st.lists(texts, max_size=3)))
    return found
