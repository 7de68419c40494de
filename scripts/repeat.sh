#!/bin/sh
# Shows that no test depends on how busy the machine is.
#   scripts/repeat.sh              the tests of processes five times beside two busy processes, then ./check twice
#   scripts/repeat.sh TIMES CHECKS other numbers of each; scripts/repeat.sh 1 0 is the shortest
# Each run is a line: what it was, how it ended, how long it took, how many tests were run again. What failed is in the
# folder that the first line names. Exit code: 0 if no run failed and nothing was run again, else 1.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
case ${1:-5}${2:-2} in
    *[!0-9]*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 1 ;;
esac
times=${1:-5} checks=${2:-2} busy='' red=0
logs=$(mktemp -d "${TMPDIR:-/tmp}/lodesman-repeat.XXXXXX")
echo "logs: $logs"
trap 'kill $busy 2>/dev/null || :' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run NAME ARGUMENTS...: one run of ./check.
run() {
    name=$1 begun=$(date +%s) how=ok
    shift
    "$root/check" "$@" >"$logs/$name" 2>&1 </dev/null || how=FAILED
    again=$(grep -c 'RUN AGAIN' "$logs/$name" || :)
    [ "$how$again" = ok0 ] || red=1
    echo "$name: $how, $(($(date +%s) - begun)) s, run again: $again"
}

if [ "$times" -gt 0 ]; then
    for _ in 1 2; do
        while :; do :; done &
        busy="$busy $!"
    done
fi
count=0
while [ "$count" -lt "$times" ]; do
    count=$((count + 1))
    run "processes-$count" --processes
done
# shellcheck disable=SC2086 # a list
[ -z "$busy" ] || kill $busy
busy='' count=0
while [ "$count" -lt "$checks" ]; do
    count=$((count + 1))
    run "check-$count"
done
exit $red
