#!/bin/sh
# Move one Iceberg table to format version 3, step by step. There is no way back from version 3.
#
#   migrate-to-v3.sh TABLE
#
# It can be run again at any time: what is done is not done twice, and what was interrupted is finished. It ends with 0,
# or with the exit code of the step that could not be done. TRIES (5) and WAIT_S (60) say how often a step is tried that
# another try can mend, and how many seconds lie between two tries.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 TABLE" >&2
    exit 2
fi
table=$1

# step COMMAND...: until it succeeds, or fails by something that no other try can mend.
step() {
    tries=${TRIES:-5}
    while :; do
        code=0
        iceberg-cli "$@" || code=$?
        tries=$((tries - 1))
        case $code in
            0) return ;;
            12 | 13 | 14 | 16) # a conflict, an unknown outcome, something left open, no answer: the same command again
                [ "$tries" -gt 0 ] || break
                sleep "${WAIT_S:-60}"
                ;;
            *) break ;;
        esac
    done
    echo "$0: iceberg-cli $1 ended with $code: stopped; what was done before is valid as it is" >&2
    exit "$code"
}

step upgrade-v3 "$table" --check # 11 where something stands in the way
step upgrade-v3 "$table" --yes --quiet
step merge-dvs "$table" --yes --quiet      # position deletes become deletion vectors
step assign-row-ids "$table" --yes --quiet # on every branch
step inspect "$table" --check              # 15 where the table breaks its specification
echo "$table: format version 3"
