# shellcheck shell=sh
# Sourced by ./demo and ./check, which set `root` (the checkout) first. Makes .venv once and then finds it.
#
# `set_up runtime` or `set_up dev` leaves a virtual environment in $venv with the locked packages and the
# command `lode`, which runs the sources in place. A stamp with a checksum of all inputs makes the
# next call take milliseconds. Nothing outside the checkout changes, except one Debian package
# (python3-venv) when the machine has no usable Python and the caller is root.

venv=$root/.venv
oldest_python='3, 11'
missing_package=python3-venv

say() {
    printf '%s\n' "$*" >&2
}

# quietly LABEL COMMAND...: one line of progress; the command's output is shown only if it fails.
quietly() {
    printf '%s ... ' "$1" >&2
    shift
    log=$(mktemp)
    begun=$(date +%s)
    if "$@" </dev/null >"$log" 2>&1; then
        say "$(($(date +%s) - begun)) s"
        rm -f "$log"
    else
        say "failed:"
        tail -n 30 "$log" >&2
        rm -f "$log"
        exit 1
    fi
}

# Sets `python` to the first interpreter that is new enough and can make virtual environments with pip.
find_python() {
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        "$python" -c "import sys, ensurepip, ssl, venv; sys.exit(sys.version_info < ($oldest_python))" \
            2>/dev/null && return 0
    done
    return 1
}

install_python() {
    # An unreachable extra source must not stop the others.
    apt-get -q update || true
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 \
        install --no-install-recommends "$missing_package"
}

need_python() {
    find_python && return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        say "apt-get install -y $missing_package    # as root, then again: $0"
        exit 2
    fi
    quietly "Installing $missing_package from Debian's packages" install_python
    find_python && return 0
    say "Python $(printf %s "$oldest_python" | tr -d ' ' | tr , .) or newer is needed and this system's packages have none."
    exit 2
}

# What the environment depends on, as one line: place, interpreter, locks, this script.
fingerprint() {
    {
        printf '%s\n' "$root"
        "$venv/bin/python" -c 'import sys; print(sys.version)' 2>&1
        cat "$root/requirements/runtime.txt" "$root/requirements/dev.txt" "$root/scripts/setup.sh"
    } | cksum
}

is_ready() {
    [ -f "$venv/.ready-$1" ] && [ "$(cat "$venv/.ready-$1")" = "$(fingerprint)" ]
}

install_locked() {
    # Wheels only: a build would fetch tools that no lock names. Hashes are checked; the lock is complete.
    "$venv/bin/python" -I -m pip --disable-pip-version-check --no-input install --quiet \
        --require-hashes --no-deps --only-binary :all: -r "$root/requirements/$1.txt"
}

# The sources in place on the interpreter's path, and the command beside it. The second line of the command
# is shell for a path with spaces, which a `#!` line cannot hold, and a text for Python.
link_sources() {
    packages=$("$venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$root/src" >"$packages/lodesman-sources.pth"
    cat >"$venv/bin/lode" <<TEXT
#!/bin/sh
'''exec' "$venv/bin/python" "\$0" "\$@"
' '''
import sys

from lodesman.user.cli import main

sys.exit(main())
TEXT
    chmod 755 "$venv/bin/lode"
}

make_venv() {
    rm -rf "$venv"
    "$python" -m venv "$venv"
}

set_up() {
    is_ready "$1" && return 0
    log=''
    trap 'rm -f "$log"; say; exit 130' INT
    trap 'rm -f "$log"; exit 143' TERM
    # Two set-ups at once (./demo here, ./check there) take turns where the system has flock.
    exec 9<"$root/requirements/$1.txt"
    if command -v flock >/dev/null 2>&1; then flock 9; fi
    if ! is_ready "$1"; then
        if ! is_ready runtime; then
            need_python
            quietly "Creating .venv with $("$python" -V 2>&1)" make_venv
            link_sources
        fi
        quietly "Installing the locked packages ($(grep -c '==' "$root/requirements/$1.txt"))" install_locked "$1"
        fingerprint >"$venv/.ready-runtime"
        if [ "$1" = dev ]; then fingerprint >"$venv/.ready-dev"; fi
    fi
    exec 9<&-
    trap - INT TERM
}
