# Returns whether the processes of the job on this host have more memory than they may together:
# Grid Engine ends a job beyond its `h_vmem`, which each of its processes has as its own limit, too.
fiber_is_too_large() {
    grep -q '^h_vmem=[0-9]' "$SGE_JOB_SPOOL_DIR/config" || return 1
    cat /proc/[0-9]*/status |
        awk -v most="$(ulimit -v)" -v group="$(cat "$SGE_JOB_SPOOL_DIR/addgrpid")" '
            $1 == "Groups:" {
                is_own = 0
                for (i = 2; i <= NF; i++) if ($i == group) is_own = 1
            }
            $1 == "VmSize:" && is_own { size += $2 }
            END { exit !(size > most) }'
}
# Prints the seconds of the time limit of the job: its own, or else that of its queue.
fiber_time_limit() {
    [ -z "$fiber_limit" ] || { echo "$fiber_limit"; return; }
    PATH="$SGE_ROOT/bin/$SGE_ARCH:$PATH" qconf -sq "$QUEUE@$HOSTNAME" | awk '
        $1 == "h_rt" && $2 ~ /^[0-9:]+$/ {
            count = split($2, parts, ":")
            for (i = 1; i <= count; i++) seconds = seconds * 60 + parts[i]
            print seconds
        }'
}
# Ends the head in order, before Grid Engine kills the job.
fiber_stop() {
    fiber_signal=USR2
    [ -z "$fiber_reason" ] || return 0
    fiber_reason=cancelled
    ! fiber_is_too_large || fiber_reason='out of memory: h_vmem'
    # A task that takes too much on a pilot would run again for ever if its worker ended in order.
    if [ "$fiber_reason" != cancelled ] && [ -n "$fiber_is_pilot" ]; then
        kill -KILL $fiber_head
        return
    fi
    kill -TERM $fiber_head
    (
        trap '' USR1 USR2
        fiber_waited=0
        # `fiber kill` may shorten the time while it passes.
        while [ "$fiber_waited" -lt "$(cat "$fiber_files.grace" || echo "$fiber_grace")" ]; do
            sleep 1
            fiber_waited=$((fiber_waited + 1))
        done
        kill -KILL $fiber_head
    ) &
    fiber_seconds=$(($(date +%s) - fiber_begun + 5))
    fiber_limit=$(fiber_time_limit)
    [ -z "$fiber_limit" ] || [ "$fiber_seconds" -lt "$fiber_limit" ] || fiber_reason='its time limit'
}
