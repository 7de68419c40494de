#!/bin/sh
# Count the words of one piece of a text: count_words.sh TEXT PIECE PIECES
#
# PIECE is counted from 0; pieces are runs of whole lines. Writes words.tsv: one comment line that says
# which piece of what this is, then a word and its count a line. POSIX sh and awk only.
set -eu
LC_ALL=C
export LC_ALL

if [ $# -ne 3 ] || [ ! -r "$1" ]; then
    echo "usage: count_words.sh TEXT PIECE PIECES, with a TEXT that can be read" >&2
    exit 2
fi

lines=$(awk 'END { print NR }' "$1")
awk -v piece="$2" -v pieces="$3" -v lines="$lines" -v text="$(basename "$1")" '
    BEGIN { first = int(lines * piece / pieces) + 1; last = int(lines * (piece + 1) / pieces) }
    NR < first || NR > last { next }
    {
        line = tolower($0)
        gsub(/[^a-z]+/, " ", line)
        for (k = split(line, words, " "); k > 0; k--) { count[words[k]]++; total++ }
    }
    END {
        printf "# piece %d of %d of %s, lines %d to %d, words %d\n", piece, pieces, text, first, last, total
        for (word in count) printf "%s\t%d\n", word, count[word] | "sort"
        close("sort")
    }
' "$1" > words.tsv
head -n 1 words.tsv
