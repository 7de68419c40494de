#!/bin/sh
# Proves the two commands of the README in a minimal Debian 12: no Python, no
# locale, no ps. Needs root, debootstrap and git; takes some minutes and 1 GB of temporary space.
#
#   scripts/prove-bare-debian.sh                what is committed
#   scripts/prove-bare-debian.sh --work-tree    what is in the work tree (ignored files left out)
#   scripts/prove-bare-debian.sh --full         ./check whole, instead of ./check --fast
#   scripts/prove-bare-debian.sh --ctrl-c       interrupts ./demo at several moments, too
#
# Options may be given together. ./demo must have its first result within 180 s of its start, installation included.
# Packages come from the Debian mirror that this machine is set up for. LODESMAN_PROVE_PIP_CONF=FILE gives the
# bare system that pip configuration (and the certificate file it names), for places with a package mirror.
# Prints the output and time of each step; exit code 0 only if every step ended as expected.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
suite=bookworm
place=/opt/lodesman # inside the bare system
first_result=180    # seconds

tree='' full='' ctrl_c=''
for option; do
    case $option in
    --work-tree) tree=yes ;;
    --full) full=yes ;;
    --ctrl-c) ctrl_c=yes ;;
    *) printf 'Usage: %s [--work-tree] [--full] [--ctrl-c]\n' "$0" >&2 && exit 2 ;;
    esac
done

say() {
    printf '%s\n' "$*"
}

# The first address that this machine's package lists name for the suite, in the old or the new format.
find_mirror() {
    {
        sed -n 's/^URIs:[[:space:]]*\([^[:space:]]*\).*/\1/p' /etc/apt/sources.list.d/*.sources
        sed -n "s/^deb[[:space:]]\(\[[^]]*\][[:space:]]*\)\{0,1\}\([^[:space:]]*\)[[:space:]]*$suite[[:space:]].*/\2/p" \
            /etc/apt/sources.list /etc/apt/sources.list.d/*.list
    } 2>/dev/null | grep '/debian/*$' | head -n 1
}

make_base() {
    mirror=$(find_mirror)
    [ -n "$mirror" ] || { say "No Debian mirror found in /etc/apt." && exit 1; }
    debootstrap --variant=minbase "$suite" "$bare" "$mirror" >"$work/debootstrap.log" 2>&1 || {
        tail -n 20 "$work/debootstrap.log" && exit 1
    }
    cp -L /etc/resolv.conf /etc/hosts "$bare/etc/"
    if [ -n "${LODESMAN_PROVE_PIP_CONF:-}" ]; then
        # Under a name of its own: Debian's ca-certificates, which python3-venv brings, writes the usual one anew.
        certificate=$(sed -n 's/^cert *= *//p' "$LODESMAN_PROVE_PIP_CONF" | tail -n 1)
        [ -z "$certificate" ] || cp -L "$certificate" "$bare/etc/pip-certificate.crt"
        sed 's|^cert *=.*|cert = /etc/pip-certificate.crt|' "$LODESMAN_PROVE_PIP_CONF" >"$bare/etc/pip.conf"
    fi
}

copy_checkout() {
    mkdir -p "$bare$place"
    if [ -n "$tree" ]; then
        (cd "$root" && git ls-files -z --cached --others --exclude-standard |
            tar --create --null --ignore-failed-read --files-from=- 2>/dev/null)
    else
        git -C "$root" archive HEAD
    fi | tar --extract --directory "$bare$place"
}

# inside USER COMMAND...: runs in the bare system with an empty environment, in process and mount namespaces of
# its own, so that no process outlives it. Processes that it leaves are counted and are a failure.
inside() {
    user=$1
    shift
    unshare --mount --pid --fork --kill-child sh -c '
        bare=$1; user=$2; place=$3; shift 3
        mount -t proc proc "$bare/proc"
        mount --rbind /dev "$bare/dev"
        chroot --userspec="$user" "$bare" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
            sh -c "cd \"\$0\" && exec \"\$@\"" "$place" "$@" </dev/null
        code=$?
        # ls and grep of the count are two processes, its subshell is one more. A process that is ending gets 2 s.
        for try in 1 2 3 4 5 6 7 8 9 10; do
            left=$(($(ls -d "$bare"/proc/[0-9]* | grep -cv "/1$") - 3))
            [ "$left" -gt 0 ] || break
            sleep 0.2
        done
        if [ "$left" -gt 0 ]; then echo "left running: $left processes"; code=99; fi
        exit "$code"
    ' sh "$bare" "$user" "$place" "$@"
}

# The demo on a bare machine. The time of its first result counts from here, installation included: the first output
# of a job that lies in the server's data.
timed_demo='
begun=$(date +%s)
./demo &
demo=$!
first=""
while [ -z "$first" ] && kill -0 "$demo" 2>/dev/null; do
    sleep 1
    found=$(find /tmp/lode-demo-*/data/sandboxes/out -type f 2>/dev/null | head -n 1)
    [ -z "$found" ] || first=$(($(date +%s) - begun))
done
code=0
wait "$demo" || code=$?
echo "first result: ${first:-never} (seconds after the start of ./demo; at most $1)"
[ "$code" -eq 0 ] || exit "$code"
[ -n "$first" ] && [ "$first" -le "$1" ]
'

# ./demo, interrupted after a number of seconds: it must end soon and leave no data; `inside` counts its processes.
# The signal goes to the whole group, as from a terminal. A shell lets what it starts in its background ignore SIGINT,
# and no shell can undo that: env can.
interrupted_demo='
setsid env --default-signal=INT ./demo &
demo=$!
sleep "$1"
kill -INT "-$demo" 2>/dev/null || { echo "it had ended before"; exit 98; }
second=0
while kill -0 "$demo" 2>/dev/null; do
    second=$((second + 1))
    [ "$second" -le 40 ] || { echo "still there after 40 s"; exit 97; }
    sleep 1
done
code=0
wait "$demo" || code=$?
if ls -d /tmp/lode-demo-* 2>/dev/null; then echo "left on disk"; exit 96; fi
exit "$code"
'

# step EXPECTED USER COMMAND...: prints the output, the time and the verdict.
step() {
    expected=$1
    user=$2
    shift 2
    shown=$*
    [ "$1 ${2:-}" != "sh -c" ] || shown="$4 $5"
    say "--- $shown (uid ${user%%:*})"
    begun=$(date +%s.%N)
    code=0
    inside "$user" "$@" 2>&1 || code=$?
    took=$(awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $begun }")
    if [ "$code" -eq "$expected" ]; then
        summary="$summary
  ok      $took s  $shown"
    else
        summary="$summary
  FAILED  $took s  $shown (exit code $code, expected $expected)"
        failures=$((failures + 1))
    fi
}

work=$(mktemp -d)
bare=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "Making a bare $suite ..."
make_base
copy_checkout
chmod 755 "$work" "$bare"
summary=''
failures=0

step 2 65534:65534 ./demo                   # not root: the one line that is missing, nothing touched
step 0 0:0 sh -c "$timed_demo" timed-demo "$first_result" # root: everything
step 0 0:0 .venv/bin/python -c 'import lodesman; print("lodesman", lodesman.__version__)'
step 0 0:0 .venv/bin/lode --version         # set up by now
if [ -n "$ctrl_c" ]; then
    for seconds in 1 3 8 20; do
        step 130 0:0 sh -c "$interrupted_demo" interrupted-demo "$seconds"
    done
fi
if [ -n "$full" ]; then
    step 0 0:0 ./check
else
    step 0 0:0 ./check --fast
fi

say ""
say "In a bare $suite:$summary"
[ "$failures" -eq 0 ]
