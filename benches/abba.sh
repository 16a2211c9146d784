# Two tools in turn, A B B A, for benches that compare ours with another. For sourcing, by bash here and by the plain
# shell of the lab's VMs. The caller defines run_ours and run_perftest, which run a point once and print its figure.
# shellcheck shell=sh

# Waits until somebody listens on TCP port $1, as the kernel has it: a connection might be taken for the client.
listening() {
    tries=0
    until grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F:]* 0A" /proc/net/tcp /proc/net/tcp6; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || { echo "no server on port $1" >&2; exit 1; }
        sleep 0.05
    done
}

# The figure in column $3 of the row of size $2 in file $1, or an end of it all: a run that failed must not pass unseen.
figure() {
    awk -v size="$2" -v column="$3" '$1 == size { print $column; found = 1 } END { exit !found }' "$1" && return
    echo "no figure at $2 bytes:" >&2
    cat "$1" >&2
    exit 1
}

# ROUNDS KIND SIZE…: a line "ours|perftest KIND SIZE FIGURE" for each run of the point, which begins with one of each that
# does not count. What follows the size is the caller's.
abba() {
    rounds=$1
    shift
    run_ours "$@" >/dev/null
    run_perftest "$@" >/dev/null
    round=0
    while [ $round -lt "$rounds" ]; do
        if [ $((round % 2)) = 0 ]; then
            one ours "$@"; one perftest "$@"
        else
            one perftest "$@"; one ours "$@"
        fi
        round=$((round + 1))
    done
}

one() {
    who=$1
    shift
    # By itself, so that its failure ends the bench.
    figure=$("run_$who" "$@")
    echo "$who $1 $2 $figure"
}
