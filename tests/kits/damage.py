"""Good texts that something went wrong with, for the fuzzing of parsers."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st


@st.composite
def damaged(draw: st.DrawFn, samples: Sequence[str], pieces: st.SearchStrategy[str]) -> str:
    """A good text with a few pieces cut, doubled, moved or replaced."""
    text = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(st.one_of(st.just(""), pieces, st.just(text[start:stop] * 2), st.text(max_size=3)))
        text = text[:start] + piece + text[stop:]
    return text
