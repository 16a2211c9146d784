# shellcheck shell=bash
# Shared by the scripts in ci/: how errors look, and where cached things live. Sourced, never run.

# complain "WHAT, WHICH OBJECT: THE SYSTEM'S WORDS" ["FACT: VALUE" | "hint: ONE THING TO TRY"]...
complain() {
    printf '%s: %s\n' "$PROGRAM" "$1" >&2
    shift
    local line
    for line in "$@"; do
        [ -z "$line" ] || printf '  %s\n' "$line" >&2
    done
}

# die EXIT_STATUS, then the same words as `complain`. 2 is usage, 3 is this machine, 4 is the peer or the path.
die() {
    local status=$1
    shift
    complain "$@"
    exit "$status"
}

note() { printf '%s: %s\n' "$PROGRAM" "$*" >&2; }

# One cache for all checkouts: kernel packages and built images are the same for each of them.
cache_dir() {
    printf '%s\n' "${LINKPROOF_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/linkproof/rxe-lab}"
}

# The newest cached kernel's folder (boot/ and lib/modules/ below it); nothing when there is none.
cached_kernel() {
    local newest
    newest=$(find "$(cache_dir)/kernel/" -mindepth 1 -maxdepth 1 -type d -name 'linux-image-*' 2>/dev/null | sort -V | tail -n 1)
    [ -n "$newest" ] && printf '%s\n' "$newest"
}

# Programs that the registry of Rust crates has and the distribution has not, built once for all checkouts.
tools_dir() {
    printf '%s\n' "${LINKPROOF_TOOLS:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/linkproof/tools}"
}

# What cargo does with relative folders, for a command that may be called from anywhere.
absolute() {
    case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s\n' "$ROOT/$1" ;;
    esac
}
