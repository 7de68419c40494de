#!/bin/sh
# A trusting reader of $JOBSTATUS with flock(1): flock_reader.sh DIR --json --now T --allocated A --jobstart J
# As the user of the job, never as root. It knows good directories alone, and no clamps.
directory=$1 now=$4 allocated=$6
read_all='cd "$0" && grep -H . used_CPU last_* first_* add_* can_* priority_factor'
lines=$(flock -s -w 5 "$directory/used_CPU" sh -c "$read_all" "$directory") || {
    echo '{"error": "locked:used_CPU"}'
    exit 5
}
for line in $lines; do
    key=${line%%:*} value=${line#*:}
    case $value in True) value=true ;; False) value=false ;; esac
    eval "$key=\$value"
    keys="${keys:+$keys, }\"$key\": $value"
done
printf '{"error": null, "flags": [], "keys": {%s}, ' "$keys"
printf '"remaining_expected": %d, ' $((last_exp_job_end - now))
printf '"remaining_max": %d, ' $((last_max_job_end - now))
printf '"draining_waste": %d, ' $(((allocated - used_CPU) * (first_exp_job_end - now) + add_final_exp_waste))
printf '"kill_waste": %d}\n' $((add_uncom_time + used_CPU * (now - last_job_start)))
