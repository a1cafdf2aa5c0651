# shellcheck shell=bash
# mpi.sh - sourced by tests that run the program under mpirun, after program.sh. Ends the test with
# the code for skipping (77) where there is no MPI, or the program was built without it.

# ranks N COMMAND...: runs the command as N processes
ranks() {
    local n=$1
    shift
    mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$n" "$@"
}

if ! command -v mpirun >/dev/null; then
    echo "skipped: there is no mpirun"
    exit 77
fi
# shellcheck disable=SC2154 # program.sh sets them
if ranks 1 "$heed" train --pairs none --vocab none --out "$dir/none" 2>&1 | grep -q "built without MPI"; then
    echo "skipped: $heed was built without MPI"
    exit 77
fi
