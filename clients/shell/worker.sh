#!/bin/sh
# A worker for `anyqueue serve`: runs a command for each message of some queues, one at a time. Needs POSIX sh, curl, jq and base64.
#
#   worker.sh [-u URL] [-n NAME] [-t TOKEN_FILE] [-l LEASE] [-1] -q QUEUE [-q QUEUE]... -- COMMAND [ARGUMENT]...
#
#   -u URL         the service; by default http://127.0.0.1:7780
#   -n NAME        what the worker is called; by default a name that nobody has
#   -t TOKEN_FILE  a file whose first line is a token of the service
#   -l LEASE       for how many seconds a message is held without a word of the worker; at least 3, by default 60
#   -1             end when nothing is left
#
# The command gets the payload on its standard input, and ANYQUEUE_MESSAGE_ID, ANYQUEUE_PARTITION, ANYQUEUE_KIND and ANYQUEUE_DELIVERY_COUNT. What it writes
# to its standard output is the result. As with `anyqueue work --exec`, exit code 0 ends the task, 64 and 65 make it a dead letter at once, and anything else
# is a failed attempt, with the end of its standard error. Where the task is cancelled or lost, runs for longer than its max_duration, or cannot be extended until its lease
# ends, the command gets SIGTERM, and SIGKILL if it is still there $grace seconds later; processes that it has started are its own to end.
# SIGTERM to the worker: the message under way is finished, and no other is begun.
set -u
umask 077

# How many seconds a pull waits for a message, and how many more any answer may take.
wait=20
patience=10
# Seconds between SIGTERM and SIGKILL.
grace=5
# The longest result, and the most of an error, in bytes. As JSON, which has a limit of 256 KiB, a byte takes up to six.
most_result=40000
most_error=2000

url=http://127.0.0.1:7780 name='' lease=60 once='' token=''
say() { printf 'worker.sh: %s\n' "$*" >&2; }
wrong() { say "$*"; exit 2; }

for tool in curl jq base64 mktemp; do
    command -v "$tool" >/dev/null || wrong "$tool is missing: install it"
done
queues='[]'
while getopts u:n:t:l:q:1 option; do
    case $option in
    u) url=${OPTARG%/} ;;
    n) name=$OPTARG ;;
    t) token=$OPTARG ;;
    l) lease=$OPTARG ;;
    q) queues=$(jq -cn --argjson queues "$queues" --arg queue "$OPTARG" '$queues + [$queue]') ;;
    1) once=yes ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
case $lease in *[!0-9]* | '' | ?????* | [012]) wrong "-l $lease: give it a number of seconds, from 3 to 9999" ;; esac
[ "$queues" != '[]' ] || wrong 'name a queue: -q QUEUE'
[ $# -gt 0 ] || wrong 'name a command after --'
[ -n "$name" ] || name="worker.sh $(uname -n) $$ $(od -An -N4 -tx4 /dev/urandom | tr -d ' ')"

dir=$(mktemp -d) || exit 1
ticker='' child='' call='' cutter='' stopping='' tick='' received='' delay=1
tidy() {
    for pid in $ticker $child $call $cutter; do kill "$pid" 2>/dev/null; done
    # They might write there yet.
    [ -z "$ticker$call" ] || wait $ticker $call 2>/dev/null
    rm -rf "$dir"
}
# cut PID: ends a call, also one that has only just begun: a signal that comes before a process has become another program may be lost on it.
cut() {
    kill "$1" 2>/dev/null
    (sleep 1; kill "$1") >/dev/null 2>&1 &
    cutter=$!
}
trap tidy EXIT
# What is under way is finished; a pull that waits, and a pause, are cut.
trap 'stopping=yes; [ -z "$call" ] || cut "$call"' TERM INT HUP
trap 'tick=yes' ALRM

# The token is read from a file: what stands in a command line, everybody on the machine can see.
: >"$dir/headers"
if [ -n "$token" ]; then
    [ -r "$token" ] || wrong "$token cannot be read"
    printf 'authorization: Bearer %s\n' "$(head -n 1 "$token")" >"$dir/headers"
fi

# Sets $now to whole seconds of a clock that nobody sets, where the system has one.
look() {
    if read -r now _ 2>/dev/null </proc/uptime; then now=${now%%.*}; else now=$(date +%s); fi
}

# bounded TIME: sets $limit to the seconds that a call may take, so that it does not outlast that time.
bounded() {
    look
    limit=$(($1 - now))
    [ "$limit" -lt "$patience" ] || limit=$patience
    [ "$limit" -ge 1 ] || limit=1
}

# Waits for a process to end, and sets $code: a signal ends a wait, not the process.
finish() {
    while :; do
        # Some shells tell of a process that was ended by a signal.
        wait "$1" 2>/dev/null
        code=$?
        [ "$code" -gt 128 ] && kill -0 "$1" 2>/dev/null || break
    done
    [ -z "$cutter" ] || kill "$cutter" 2>/dev/null
    cutter=''
}

# A pause, which a signal to stop ends.
nap() {
    sleep "$1" >/dev/null 2>&1 &
    call=$!
    finish "$call"
    call=''
}

# ask PATH SECONDS [cut]: sends what stands in $dir/body, and sets $status; 000 for no answer. The answer is in $dir/answer. With `cut`, a signal to stop ends it.
ask() {
    : >"$dir/answer"
    : >"$dir/status"
    curl --silent --max-time "$2" --header "@$dir/headers" --header 'content-type: application/json' \
        --data-binary "@$dir/body" --output "$dir/answer" --write-out '%{http_code}' "$url$1" >"$dir/status" &
    asked=$!
    if [ "${3:-}" = cut ]; then
        call=$asked
        # A signal that came before that was noted.
        [ -z "$stopping" ] || cut "$asked"
    fi
    finish "$asked"
    call=''
    status=$(cat "$dir/status")
    [ -n "$status" ] || status=000
}

# failed WHAT: after an answer that is none. What is refused for good ends the worker; else there is a pause, each twice as long, up to ten seconds.
failed() {
    detail=$(jq -r '.detail // "no answer"' "$dir/answer" 2>/dev/null)
    detail=${detail:-no answer}
    case $status in
    408 | 421 | 429 | 5?? | 000) ;;
    *)
        say "$1 is refused ($status): $detail"
        exit 1
        ;;
    esac
    [ "$status" != 501 ] || { say "$1 is refused ($status): $detail"; exit 1; }
    say "$1 failed ($status: $detail); again in ${delay}s"
    nap "$delay"
    delay=$((delay * 2))
    [ "$delay" -le 10 ] || delay=10
}

# extend TIME: holds the message for longer, and sets $fate if it is not to be worked on any more; once it is lost, nothing else counts. By that time, when
# something else is to be done, it is back also from a service that hangs.
extend() {
    jq -c --argjson lease "$lease" '{delivery, lease_ms: ($lease * 1000)}' "$dir/held" >"$dir/body"
    bounded "$1"
    asked_at=$now
    ask /v1/extend "$limit"
    look
    # Without an answer the next one may arrive; if none does, the message comes to somebody else.
    extend_at=$((now + (lease > 30 ? 5 : 1)))
    [ "$status" = 200 ] || return 0
    case $(jq -r '.[0].outcome' "$dir/answer") in
    lost) fate=lost ;;
    cancel_requested) fate=${fate:-cancelled} ;;
    extended) ;;
    *) return 0 ;;
    esac
    held_until=$((asked_at + lease)) extend_at=$((asked_at + lease / 3))
}

# Runs the command for the message in $dir/held, and holds that meanwhile. Sets $fate.
run() {
    if jq -e 'has("payload_base64")' "$dir/held" >/dev/null; then
        jq -r .payload_base64 "$dir/held" | base64 -d >"$dir/payload"
    else
        jq -j '.payload // ""' "$dir/held" >"$dir/payload"
    fi
    ANYQUEUE_MESSAGE_ID=$(jq -r .id "$dir/held") ANYQUEUE_PARTITION=$(jq -r .partition "$dir/held")
    ANYQUEUE_KIND=$(jq -r '.kind // ""' "$dir/held") ANYQUEUE_DELIVERY_COUNT=$(jq -r '.delivery_count // ""' "$dir/held")
    export ANYQUEUE_MESSAGE_ID ANYQUEUE_PARTITION ANYQUEUE_KIND ANYQUEUE_DELIVERY_COUNT
    # Rounded up; 0 for no end.
    longest=$(jq -r '((.max_duration_ms // 0) / 1000) | ceil' "$dir/held")
    look
    # A second more: both ends are whole seconds, and it has all of its time.
    end_at=$((longest > 0 ? now + longest + 1 : 0))
    kill_at=0 extend_at=$((now + lease / 3)) fate='' tick=''
    (trap - TERM HUP ALRM EXIT; exec "$@") <"$dir/payload" >"$dir/out" 2>"$dir/err" &
    child=$!
    main=$$
    (trap - TERM INT HUP ALRM EXIT; while sleep 1; do kill -ALRM "$main" || exit; done) >/dev/null 2>&1 &
    ticker=$!
    while :; do
        wait "$child" 2>/dev/null
        code=$?
        # A signal ends the wait, not the command.
        [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null || break
        [ -n "$tick" ] || continue
        tick=''
        look
        # Also while it is being ended: it is this worker's until then.
        if [ "$now" -ge "$extend_at" ] && [ "$now" -lt "$held_until" ] && [ "$fate" != lost ]; then
            next=$held_until
            [ -n "$fate" ] || [ "$end_at" -eq 0 ] || [ "$end_at" -ge "$next" ] || next=$end_at
            [ "$kill_at" -eq 0 ] || [ "$kill_at" -ge "$next" ] || next=$kill_at
            extend "$next"
        fi
        [ "$now" -lt "$held_until" ] || fate=lost
        [ "$end_at" -eq 0 ] || [ "$now" -lt "$end_at" ] || fate=${fate:-timed_out}
        [ -n "$fate" ] || continue
        if [ "$kill_at" -eq 0 ]; then
            kill_at=$((now + grace))
            kill -TERM "$child" 2>/dev/null
        elif [ "$now" -ge "$kill_at" ]; then
            kill -KILL "$child" 2>/dev/null
        fi
    done
    kill "$ticker" 2>/dev/null
    wait "$ticker" 2>/dev/null
    child='' ticker=''
    [ -z "$fate" ] || return 0
    case $code in
    0) fate=processed ;;
    64 | 65) fate=poisonous ;;
    *) fate=failed ;;
    esac
}

# Says what became of it, until that is heard or its lease is over: settling again is harmless.
settle() {
    [ "$fate" != lost ] || { say "$ANYQUEUE_MESSAGE_ID is lost: somebody else may have it"; return 0; }
    head -c "$most_result" "$dir/out" | jq -Rs . >"$dir/result"
    tail -c "$most_error" "$dir/err" | jq -Rs . >"$dir/error"
    jq -c --arg status "$fate" --arg code "$code" --arg worker "$name" --slurpfile result "$dir/result" --slurpfile error "$dir/error" \
        '{delivery, status: $status, worker: $worker}
         + if $status == "processed" then {result: $result[0]}
           elif $status == "cancelled" then {}
           elif $status == "timed_out" then {error: "it ran for longer than its max_duration"}
           else {error: ("exit code " + $code + ": " + ($error[0] | sub("\\s+$"; "")))} end' "$dir/held" >"$dir/body"
    outcome=''
    while :; do
        bounded "$held_until"
        ask /v1/settle "$limit"
        if [ "$status" = 200 ]; then
            outcome=$(jq -r '.[0].outcome' "$dir/answer")
            [ "$outcome" = error ] || break
            outcome=$(jq -r '.[0].problem.detail' "$dir/answer")
            # It is not done, and another try does not help: it comes again.
            [ "$(jq -r '.[0].problem.retry' "$dir/answer")" != never ] || break
            nap 1
        else
            failed 'to settle'
        fi
        look
        [ "$now" -lt "$held_until" ] || break
    done
    delay=1
    [ "$outcome" = settled ] || say "$ANYQUEUE_MESSAGE_ID is not settled: ${outcome:-no answer}"
}

while [ -z "$stopping" ]; do
    [ -z "$once" ] || wait=0
    jq -cn --argjson queues "$queues" --arg worker "$name" --arg received "$received" --argjson lease "$lease" --argjson wait "$wait" \
        '{partitions: $queues, wait_ms: ($wait * 1000), worker: $worker, lease_ms: ($lease * 1000)}
         + if $received == "" then {} else {received: $received} end' >"$dir/body"
    ask /v1/pull $((wait + patience)) cut
    if [ "$status" != 200 ]; then
        [ -n "$stopping" ] || failed 'to pull'
        continue
    fi
    delay=1
    received=$(jq -r .pull "$dir/answer")
    look
    held_until=$((now + $(jq -r '(.deliveries[0].lease_ms // 0) / 1000 | round' "$dir/answer")))
    if jq -ce '.deliveries[0] // empty' "$dir/answer" >"$dir/held"; then
        run "$@"
        settle
    elif [ -n "$once" ]; then
        stopping=yes
    fi
done
# A pull that was cut may have brought something all the same: it goes back untouched.
if jq -ce '.deliveries[0] // empty | {delivery, status: "waiting"}' "$dir/answer" >"$dir/body" 2>/dev/null; then
    ask /v1/settle "$patience"
fi
exit 0
