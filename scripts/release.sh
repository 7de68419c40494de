#!/bin/sh
# Makes a release of what is committed, proves it, and says what is left to do. Nothing is uploaded.
#   scripts/release.sh               a dry run: the files of the release in dist, no tag
#   scripts/release.sh --tag         the annotated tag, too, when all is proven; it is pushed by hand
#   scripts/release.sh --output DIR  the files in another folder than dist
#   scripts/release.sh --no-demo     without the demo, which takes half a minute; not together with --tag
# What is proven: wheel and source package are the same from two clones with other permissions and another time zone, and
# a wheel that is built from the source package, too; the wheel, installed in a clean environment with the locked packages, has
# this commit, and runs the demo. The version is that of src/lodesman/__init__.py, its changes stand in CHANGELOG.md.
# Exit codes: 0 proven, 1 refused or failed, 2 a package must be installed by root.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
. "$root/scripts/setup.sh"

refuse() {
    say "release: $*"
    exit 1
}

tag='' demo=yes output=$root/dist
while [ $# -gt 0 ]; do
    case $1 in
        --tag) tag=yes ;;
        --no-demo) demo='' ;;
        --output) [ $# -gt 1 ] || refuse "--output needs a folder"; output=$2 && shift ;;
        -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' && exit 0 ;;
        *) refuse "unknown argument $1 (see scripts/release.sh --help)" ;;
    esac
    shift
done
[ -z "$tag" ] || [ -n "$demo" ] || refuse "a release that gets its tag is proven with the demo: leave out --no-demo"
case $output in /*) ;; *) output=$PWD/$output ;; esac

# --- what would be released, and whether it may be ---------------------------------------------------------------

cd "$root"
changed=$(git status --porcelain)
[ -z "$changed" ] || refuse "only what is committed is released; not committed is:
$changed"
commit=$(git rev-parse HEAD)
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' src/lodesman/__init__.py)
name=lodesman-$version
grep -q "^## $version - [0-9-]*\$" CHANGELOG.md ||
    refuse "CHANGELOG.md has no section \"## $version - $(date -u +%Y-%m-%d)\": write what this version has"
unreleased=$(awk '/^## /{within = /^## Unreleased/; next} within && NF' CHANGELOG.md)
[ -z "$unreleased" ] || refuse "CHANGELOG.md has changes under Unreleased: put them into the section of the version"
tagged=$(git rev-parse --quiet --verify "refs/tags/v$version^{commit}" || :)
[ -z "$tagged" ] || [ -z "$tag" ] || refuse "the tag v$version is there already: give src/lodesman/__init__.py another version"
[ -z "$tagged" ] || [ "$tagged" = "$commit" ] ||
    refuse "v$version is another commit ($tagged): give src/lodesman/__init__.py another version"
files="$name-py3-none-any.whl $name.tar.gz $name.requirements.txt SHA256SUMS"
for file in "$output"/*; do
    case " $files " in
        *" ${file##*/} "*) ;;
        *) [ ! -e "$file" ] || refuse "$file is no file of this release: remove it, or name another folder (--output)" ;;
    esac
done

set_up dev
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
unset PYTHONPATH PYTHONHOME
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH

# --- built twice, and once more from the source package ----------------------------------------------------------

# `quietly` turns `set -e` off in what it runs, hence each && below.

# build TREE PLACE [-t KIND]: with the locked hatchling of .venv; an isolated build would fetch one that no lock names.
build() (
    tree=$1 place=$2
    shift 2
    cd "$tree" && "$venv/bin/python" -m hatchling build -d "$place" "$@"
)

# build_clone FOLDER UMASK ZONE: of the commit, below $work.
build_clone() (
    export TZ="$3"
    umask "$2" &&
        git clone --quiet --no-checkout "$root" "$work/$1/tree" &&
        git -C "$work/$1/tree" checkout --quiet --detach "$commit" &&
        build "$work/$1/tree" "$work/$1/built"
)

build_sources() {
    mkdir "$work/sources" &&
        tar -xzf "$work/one/built/$name.tar.gz" -C "$work/sources" &&
        build "$work/sources/$name" "$work/sources/built" -t wheel
}

compare() {
    cmp "$work/one/built/$1" "$work/$2/built/$1" || refuse "$1 is not reproducible: $2"
}

quietly "Building $name" build_clone one 022 UTC0
quietly "Building it again elsewhere" build_clone "another/folder" 077 XYZ-11
quietly "Building the wheel from the source package" build_sources
compare "$name-py3-none-any.whl" another/folder
compare "$name.tar.gz" another/folder
compare "$name-py3-none-any.whl" sources

# --- installed and used ------------------------------------------------------------------------------------------

clean=$work/clean

# Of the wheel's own needs none comes from an index: the locked set has them.
install_clean() {
    "$venv/bin/python" -m venv "$clean" &&
        "$clean/bin/python" -I -m pip --disable-pip-version-check --no-input install --quiet \
            --require-hashes --no-deps --only-binary :all: -r "$root/requirements/runtime.txt" &&
        "$clean/bin/python" -I -m pip --disable-pip-version-check --no-input install --quiet \
            --no-index "$work/one/built/$name-py3-none-any.whl"
}

begin() (
    mkdir "$work/empty" && cd "$work/empty" && said=$("$clean/bin/lode" --version) || exit 1
    [ "$said" = "lode $version (commit $(printf %.12s "$commit"))" ] || {
        say "lode --version says: $said"
        exit 1
    }
    "$clean/bin/lode" init && "$clean/bin/lode" config check lode.toml
)

# The jobs and sites of the demo are in the sources; lodesman itself is the one that is installed.
run_demo() (
    export PYTHONPATH="$work/one/tree"
    mkdir "$work/demo" && cd "$work/demo" && "$clean/bin/python" -P -m examples.demo --results "$work/demo/results"
)

quietly "Installing it in a clean environment" install_clean
quietly "Asking for its version and a first configuration" begin
[ -z "$demo" ] || quietly "Running the demo with it" run_demo

# --- handed over -------------------------------------------------------------------------------------------------

mkdir -p "$output"
cp "$work/one/built/$name-py3-none-any.whl" "$work/one/built/$name.tar.gz" "$output/"
cp requirements/runtime.txt "$output/$name.requirements.txt"
(cd "$output" && sha256sum "$name-py3-none-any.whl" "$name.tar.gz" "$name.requirements.txt" >SHA256SUMS)
[ -z "$tag" ] || git tag -a "v$version" -m "Lodesman $version" "$commit"

printf '%s\n' "Lodesman $version, commit $commit, in $output:" "$(cat "$output/SHA256SUMS")"
if [ -n "$tag" ]; then
    printf '%s\n' "The tag v$version is made. Left to do:"
else
    printf '%s\n' "This was a dry run: there is no new tag. Left to do, once ./check --all is green:" "  scripts/release.sh --tag"
fi
printf '%s\n' "  git push origin v$version" "  publish these files and SHA256SUMS"
