//! `work --exec`: exit codes, environment, retries, time-outs, the end.

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::bed::{Bed, PATIENCE, ended, signal, until};

/// A time-out that finds the command begun and its traps set, also on a busy machine.
const BEGUN: &str = "5s";

fn summary(ran: &crate::bed::Ran) -> Value {
    ran.objects().pop().unwrap()
}

#[tokio::test]
async fn exit_codes_say_what_becomes_of_messages() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "0", "64", "65", "75", "1", "99"]).await;
    let work =
        ["work", "q", "--exec", "exit $(cat)", "--once", "--retries", "0", "--dead-on", "64,65,99", "--json"];
    let ran = bed.ok(&work).await;
    assert_eq!((&summary(&ran)["processed"], &summary(&ran)["dead"]), (&1.into(), &5.into()), "{ran:?}");
    for letter in bed.ok(&["dead", "list", "q", "--json"]).await.objects() {
        let (code, reason) = (letter["payload"].as_str().unwrap(), letter["dead_reason"].as_str().unwrap());
        assert!(reason.ends_with(&format!("exited with {code}")), "{code}: {reason}");
        assert_eq!(reason.contains("permanently"), ["64", "65", "99"].contains(&code), "{code}: {reason}");
    }
    assert_eq!(bed.counts("q").await, [0, 0, 0, 5]);
}

#[tokio::test]
async fn a_command_finds_its_message() {
    let bed = Bed::new();
    let header =
        ["--header", "Content-Type=text/plain", "--kind", "k", "--task-id", "t", "--session-id", "s"];
    bed.run_with(&[&["push", "q", "--priority", "3"], header.as_slice()].concat(), b"\x00pay\xffload")
        .await
        .ended_with(0);
    bed.ok(&[
        "work",
        "q",
        "--once",
        "--exec",
        "cat > payload; env > environment; echo to stdout; echo to stderr >&2",
    ])
    .await;
    assert_eq!(std::fs::read(bed.path("payload")).unwrap(), b"\x00pay\xffload");
    let environment = std::fs::read_to_string(bed.path("environment")).unwrap();
    for variable in [
        "ANYQUEUE_QUEUE=q",
        "ANYQUEUE_ATTEMPT=1",
        "ANYQUEUE_DELIVERIES=1",
        "ANYQUEUE_PRIORITY=3",
        "ANYQUEUE_KIND=k",
        "ANYQUEUE_TASK_ID=t",
        "ANYQUEUE_SESSION_ID=s",
        "ANYQUEUE_HEADER_CONTENT_TYPE=text/plain",
        "ANYQUEUE_HEADERS={\"Content-Type\":\"text/plain\",\"task-kind\":\"k\"}",
    ] {
        assert!(environment.lines().any(|line| line == variable), "{variable} is not in {environment}");
    }
    assert!(environment.contains("ANYQUEUE_MESSAGE_ID="));
}

#[tokio::test]
async fn the_output_of_commands_is_passed_on() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let ran = bed.ok(&["work", "q", "--once", "--exec", "echo spoken; echo muttered >&2"]).await;
    assert_eq!(ran.out, "spoken\n", "the account is not among it");
    assert!(ran.err.contains("muttered\n") && ran.err.contains("processed 1"), "{ran:?}");
}

#[tokio::test]
async fn a_large_payload_that_nobody_reads_is_fine() {
    let bed = Bed::new();
    bed.run_with(&["push", "q"], &vec![b'x'; 4 << 20]).await.ended_with(0);
    let ran = bed.ok(&["work", "q", "--once", "--exec", "exec <&-; sleep 0.3", "--json"]).await;
    assert_eq!(summary(&ran)["processed"], 1, "{ran:?}");
}

#[tokio::test]
async fn what_fails_is_tried_again_and_then_dies_with_its_history() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let exec = "echo $ANYQUEUE_ATTEMPT >> attempts; exit 75";
    let work = ["work", "q", "--retries", "2", "--retry-delay", "20ms", "--exec", exec, "--json"];
    let child = bed.command(&work).spawn().unwrap();
    until("the message died", async || (bed.counts("q").await[3] == 1).then_some(())).await;
    signal(&child, Signal::TERM);
    let ran = ended(child).await.ended_with(0);
    assert_eq!((&summary(&ran)["retried"], &summary(&ran)["dead"]), (&2.into(), &1.into()), "{ran:?}");
    assert_eq!(std::fs::read_to_string(bed.path("attempts")).unwrap(), "1\n2\n3\n");
    let letter = bed.ok(&["dead", "list", "q", "--json"]).await.objects().remove(0);
    let shown = bed.ok(&["dead", "show", "q", letter["id"].as_str().unwrap()]).await.out;
    assert!(shown.contains("attempt 1") && shown.contains("exited with 75"), "{shown}");
}

/// Whether the process is gone, or has ended and was not yet collected.
pub(crate) fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

#[tokio::test]
async fn all_processes_of_a_command_are_killed_when_its_time_is_over() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    // Neither the shell nor its child heeds SIGTERM.
    let exec = "trap '' TERM; sleep 1000 & echo $! > child; wait; wait; sleep 1000";
    let work = ["work", "q", "--once", "--timeout", BEGUN, "--grace", "200ms", "--exec", exec, "--json"];
    let ran = bed.ok(&work).await;
    assert_eq!(summary(&ran)["dead"], 1, "{ran:?}");
    let child = bed.line_of("child").await;
    until("the child of the command is gone", async || is_gone(child.trim()).then_some(())).await;
    let letter = bed.ok(&["dead", "list", "q", "--json"]).await.objects().remove(0);
    assert!(letter["dead_reason"].as_str().unwrap().starts_with("timed_out"), "{letter}");
}

#[tokio::test]
async fn a_command_may_end_in_order_when_it_is_asked_to_stop_and_is_not_taken_for_done() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x", "--max-duration", BEGUN]).await;
    let exec = "trap 'echo bye > farewell; exit 0' TERM; while :; do sleep 0.05; done";
    let ran = bed.ok(&["work", "q", "--once", "--grace", "60s", "--exec", exec, "--json"]).await;
    assert_eq!((&summary(&ran)["processed"], &summary(&ran)["dead"]), (&0.into(), &1.into()), "{ran:?}");
    assert_eq!(bed.line_of("farewell").await, "bye\n");
}

#[tokio::test]
async fn what_timed_out_is_tried_again_if_wanted() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let exec = "test $ANYQUEUE_ATTEMPT = 2 || sleep 1000";
    let options = ["--timeout", BEGUN, "--retry-timeouts", "--retry-delay", "1ms", "--exec", exec, "--json"];
    let child = bed.command(&[&["work", "q"], options.as_slice()].concat()).spawn().unwrap();
    until("the queue is empty", async || (bed.counts("q").await == [0; 4]).then_some(())).await;
    signal(&child, Signal::TERM);
    let ran = ended(child).await.ended_with(0);
    assert_eq!((&summary(&ran)["retried"], &summary(&ran)["processed"]), (&1.into(), &1.into()), "{ran:?}");
}

#[tokio::test]
async fn sigterm_lets_commands_finish_and_takes_nothing_more() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "one", "two"]).await;
    let exec = "echo began > began; while [ -d $PWD ] && [ ! -e go ]; do sleep 0.02; done; cat >> done";
    let child = bed.command(&["work", "q", "--slots", "1", "--exec", exec, "--json"]).spawn().unwrap();
    bed.line_of("began").await;
    signal(&child, Signal::TERM);
    std::fs::write(bed.path("go"), "").unwrap();
    let ran = ended(child).await.ended_with(0);
    assert_eq!(summary(&ran)["interrupted"], 0, "{ran:?}");
    // The first may have ended before the signal came; then the second may have begun.
    let done = std::fs::read_to_string(bed.path("done")).unwrap();
    let left = bed.counts("q").await[0];
    assert!(done == "one" && left == 1 || done == "onetwo" && left == 0, "{done}, {left} left");
}

#[tokio::test]
async fn what_a_shutdown_interrupts_is_released_uncounted() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let exec = "echo began > began; exec sleep 1000";
    let child = bed
        .command(&["work", "q", "--drain", "100ms", "--grace", "5s", "--exec", exec, "--json"])
        .spawn()
        .unwrap();
    bed.line_of("began").await;
    signal(&child, Signal::INT);
    let ran = ended(child).await.ended_with(0);
    assert_eq!(summary(&ran)["interrupted"], 1, "{ran:?}");
    let found = bed.ok(&["peek", "q", "--json"]).await.objects().remove(0);
    assert_eq!((&found["state"], &found["deliveries"]), (&"ready".into(), &0.into()), "{found}");
}

#[tokio::test]
async fn a_killed_workers_messages_go_to_the_next() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let mut child =
        bed.command(&["work", "q", "--exec", "echo $$ > began; exec sleep 1000"]).spawn().unwrap();
    let command = bed.line_of("began").await;
    child.kill().await.unwrap();
    // What the killed worker ran goes on, as the help says; nobody else would end it.
    let pid = rustix::process::Pid::from_raw(command.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(bed.counts("q").await, [0, 0, 1, 0]);
    let ran = bed.ok(&["pull", "q", "--wait", "60s"]).await;
    assert_eq!(ran.out, "x\n");
}

#[tokio::test]
async fn what_outlives_the_shell_of_a_command_that_was_stopped_is_killed_too() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    // The shell heeds SIGTERM, what it runs does not.
    let exec =
        "(trap '' TERM; echo $$ > shell; sh -c 'echo $PPID' > child; while :; do sleep 0.05; done) | cat";
    let work = ["work", "q", "--once", "--timeout", BEGUN, "--grace", "200ms", "--exec", exec, "--json"];
    let ran = bed.ok(&work).await;
    assert_eq!(summary(&ran)["dead"], 1, "{ran:?}");
    let child = bed.line_of("child").await;
    until("the child of the command is gone", async || is_gone(child.trim()).then_some(())).await;
}

#[tokio::test]
async fn a_header_too_long_for_the_environment_is_left_out() {
    let bed = Bed::new();
    let long = format!("long={}", "x".repeat(120_000));
    bed.ok(&["push", "q", "x", "--header", &long, "--header", "short=1"]).await;
    let exec = "echo ${ANYQUEUE_HEADER_LONG-none} $ANYQUEUE_HEADER_SHORT";
    assert_eq!(bed.ok(&["work", "q", "--once", "--exec", exec]).await.out, "none 1\n");
}

#[tokio::test]
async fn with_json_only_the_account_is_on_standard_output() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let ran = bed.ok(&["work", "q", "--once", "--exec", "printf spoken", "--json"]).await;
    assert_eq!((ran.objects().len(), &summary(&ran)["processed"]), (1, &1.into()), "{ran:?}");
    assert!(ran.err.contains("spoken"), "{ran:?}");
}

#[tokio::test]
async fn failed_attempts_are_told() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let ran = bed.ok(&["work", "q", "--once", "--retries", "0", "--exec", "exit 75"]).await;
    assert!(ran.err.contains("attempt 1: the command exited with 75"), "{ran:?}");
}

#[tokio::test]
async fn pulls_that_fail_are_told() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "y"]).await;
    let mut child = bed.command(&["work", "q", "--exec", "echo began > began"]).spawn().unwrap();
    bed.line_of("began").await;
    // Without its table no look at the queue succeeds.
    let file = rusqlite::Connection::open(bed.path("jobs.db")).unwrap();
    file.busy_timeout(PATIENCE).unwrap();
    file.execute_batch("ALTER TABLE anyqueue_ready RENAME TO elsewhere").unwrap();
    let mut spoken = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = async {
        while let Some(line) = spoken.next_line().await.unwrap() {
            if line.contains("the backend fails, trying again") {
                return;
            }
        }
        panic!("the command has ended and told of no pull");
    };
    tokio::time::timeout(PATIENCE, told).await.expect("it tells of pulls that fail");
    signal(&child, Signal::TERM);
    ended(child).await;
}

#[tokio::test]
async fn the_url_is_not_passed_on() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    assert_eq!(bed.ok(&["work", "q", "--once", "--exec", "echo ${ANYQUEUE_URL-none}"]).await.out, "none\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn when_the_terminal_goes_a_worker_ends_in_order() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let exec = "echo began > began; exec sleep 1000";
    let work = ["work", "q", "--drain", "0s", "--exec", exec, "--json"];
    let child = bed.command_that_meets_hangups("default", &work).spawn().unwrap();
    bed.line_of("began").await;
    signal(&child, Signal::HUP);
    let ran = ended(child).await.ended_with(0);
    assert_eq!(summary(&ran)["interrupted"], 1, "{ran:?}");
    assert_eq!(bed.counts("q").await, [1, 0, 0, 0]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_worker_that_is_to_outlive_its_terminal_goes_on() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "first"]).await;
    let work = ["work", "q", "--exec", "m=$(cat); echo $m > $m", "--json"];
    let child = bed.command_that_meets_hangups("ignore", &work).spawn().unwrap();
    bed.line_of("first").await;
    signal(&child, Signal::HUP);
    bed.ok(&["push", "q", "second"]).await;
    bed.line_of("second").await;
    signal(&child, Signal::TERM);
    assert_eq!(summary(&ended(child).await.ended_with(0))["processed"], 2);
}

#[tokio::test]
async fn commands_run_side_by_side() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "a", "b", "c"]).await;
    // Each waits for the others.
    let exec = "m=$(cat); : > at-$m; while [ -d $PWD ] && ! { [ -e at-a ] && [ -e at-b ] && [ -e at-c ]; }; do sleep 0.02; done";
    let ran =
        bed.ok(&["work", "q", "--once", "--slots", "3", "--timeout", "60s", "--exec", exec, "--json"]).await;
    assert_eq!(summary(&ran)["processed"], 3, "{ran:?}");
}

#[tokio::test]
async fn the_last_line_on_standard_error_says_why_and_a_redrive_finds_it() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let exec = "echo Traceback >&2; echo 'connection refused' >&2; exit 1";
    let ran = bed.ok(&["work", "q", "--once", "--retries", "0", "--exec", exec]).await;
    assert!(ran.err.contains("Traceback\n"), "it is passed on: {ran:?}");
    let letter = bed.ok(&["dead", "list", "q", "--json"]).await.objects().remove(0);
    assert!(
        letter["dead_reason"].as_str().unwrap().ends_with("the command exited with 1: connection refused"),
        "{letter}"
    );
    bed.ok(&["dead", "redrive", "q", "--reason", "connection refused"]).await;
    assert_eq!(bed.counts("q").await, [1, 0, 0, 0]);
}

#[tokio::test]
async fn a_command_starts_however_much_there_is_in_headers() {
    let bed = Bed::new();
    let headers: serde_json::Map<_, _> =
        (0..60).map(|n| (format!("h{n}"), Value::from("x".repeat(60_000)))).collect();
    let line = serde_json::json!({ "payload": "large", "headers": headers }).to_string();
    bed.run_with(&["push", "q", "--ndjson"], line.as_bytes()).await.ended_with(0);
    let exec = "echo $ANYQUEUE_OMITTED > omitted; echo $ANYQUEUE_MESSAGE_ID > id";
    bed.ok(&["work", "q", "--once", "--slots", "1", "--exec", exec]).await;
    let omitted: u32 = bed.line_of("omitted").await.trim().parse().unwrap();
    assert!((50..=61).contains(&omitted), "{omitted} are left out");
    assert_eq!(bed.line_of("id").await.trim().len(), 36);
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn a_retried_message_says_how_often_it_was_tried() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    for _ in 0..2 {
        bed.ok(&["work", "q", "--once", "--retries", "1", "--retry-delay", "1ms", "--exec", "exit 1"]).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await; // the delay of the retry, and more
    }
    let letter = bed.ok(&["dead", "list", "q", "--json"]).await.objects().remove(0);
    assert!(letter["dead_reason"].as_str().unwrap().contains("attempt 2"), "{letter}");
    assert_eq!(letter["tried"], 2, "{letter}");
}

#[tokio::test]
async fn a_pause_is_named_as_the_reason_for_nothing() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    bed.ok(&["pause", "q"]).await;
    let work = bed.ok(&["work", "q", "--once", "--exec", "true"]).await;
    assert!(work.err.contains("q is paused"), "{work:?}");
    let pull = bed.run(&["pull", "q"]).await.ended_with(4);
    assert!(pull.err.contains("q is paused"), "{pull:?}");
    let typo = bed.ok(&["pause", "qq"]).await;
    assert!(typo.err.contains("is the name right"), "{typo:?}");
}
