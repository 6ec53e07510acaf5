//! `move`: everything arrives, exactly accounted for, also when it is killed or interrupted on the way.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::{Bed, Ran, ended, numbers, signal, soon, until};

/// The account of a queue that a move wrote.
fn account(ran: &Ran, dead: bool) -> Value {
    ran.objects().into_iter().find(|account| account["dead_letters"] == dead).unwrap()
}

/// The ids of what was peeked at, which must be different.
fn distinct(peeked: &Ran) -> BTreeSet<String> {
    let all: Vec<_> = peeked.objects().iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect();
    let distinct: BTreeSet<_> = all.iter().cloned().collect();
    assert_eq!(distinct.len(), all.len(), "no id is there twice");
    distinct
}

/// All ids in a queue.
async fn ids(bed: &Bed, queue: &str) -> BTreeSet<String> {
    distinct(&bed.ok(&["peek", queue, "--max", "1000000", "--json"]).await)
}

/// A second place in the same folder.
async fn target_counts(bed: &Bed, queue: &str) -> u64 {
    let ran = bed.run(&["--url", "sqlite:new.db", "stats", queue, "--json"]).await;
    if ran.code == Some(0) { ran.objects()[0]["ready"].as_u64().unwrap() } else { 0 }
}

/// How many messages have come to the second place, by a look that is over long before the move is: a command's may not be.
fn arrived(bed: &Bed) -> u64 {
    let file = Connection::open_with_flags(bed.path("new.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let count = |file: Connection| {
        file.query_row("SELECT count(*) FROM anyqueue_ready", [], |row| row.get::<_, i64>(0))
    };
    file.and_then(count).map_or(0, i64::unsigned_abs)
}

async fn target_ids(bed: &Bed, queue: &str) -> BTreeSet<String> {
    distinct(&bed.ok(&["--url", "sqlite:new.db", "peek", queue, "--max", "1000000", "--json"]).await)
}

async fn push_lines(bed: &Bed, range: std::ops::Range<usize>) {
    bed.run_with(&["push", "q", "--lines"], &numbers(range)).await.ended_with(0);
}

#[tokio::test]
async fn a_moved_queue_is_whole_at_the_other_place() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "low", "--header", "h=1", "--task-id", "t", "--session-id", "s"]).await;
    bed.ok(&[
        "push",
        "q",
        "high",
        "--priority",
        "7",
        "--group",
        "g",
        "--dedup-key",
        "k",
        "--max-retries",
        "2",
    ])
    .await;
    bed.ok(&["push", "q", "second of the group", "--group", "g"]).await;
    bed.ok(&["push", "q", "later", "--delay", "1h"]).await;
    bed.ok(&["push", "r", "bad"]).await;
    bed.ok(&["pull", "r", "--settle", "poisonous", "--reason", "rotten"]).await;
    let before = bed.ok(&["peek", "q", "--json"]).await.objects();
    let ran = bed.ok(&["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--json"]).await;
    let wanted = json!({
        "queue": "q", "dead_letters": false, "moved": 4, "delivered_before": 0, "already_there": 0, "refused": 0, "released": 0,
        "unknown": 0, "in_both": 0, "left": { "ready": 0, "delayed": 0, "leased": 0, "disabled": 0 },
    });
    assert_eq!(ran.objects(), [wanted]);
    let after = bed.ok(&["--url", "sqlite:new.db", "peek", "q", "--json"]).await.objects();
    assert_eq!((before.len(), after.len()), (4, 4));
    assert_eq!(after[3]["state"], "delayed");
    let (due_before, due_after) =
        (before[3]["due_in_ms"].as_u64().unwrap(), after[3]["due_in_ms"].as_u64().unwrap());
    assert!(
        due_after <= due_before && due_after > 3_000_000,
        "what is left of the hour: {due_before}, {due_after}"
    );
    let fields = [
        "id",
        "payload",
        "headers",
        "task_id",
        "session_id",
        "priority",
        "group",
        "dedup_key",
        "max_retries",
    ];
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(fields.map(|field| &old[field]), fields.map(|field| &new[field]));
    }
    let order = bed.ok(&["--url", "sqlite:new.db", "pull", "q", "-n", "9"]).await.out;
    assert_eq!(order, "high\nlow\n", "the second of the group waits for the first");
    let ran = bed.ok(&["move", "sqlite:jobs.db", "sqlite:new.db", "--dead", "--json", "--wait", "0s"]).await;
    assert!(ran.objects().iter().all(|account| account["queue"] == "r"), "q has nothing left: {ran:?}");
    let letters = bed.ok(&["--url", "sqlite:new.db", "dead", "list", "r", "--json"]).await.objects();
    assert_eq!((&letters[0]["payload"], &letters[0]["dead_reason"]), (&json!("bad"), &json!("rotten")));
    assert_eq!(bed.counts("r").await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn a_killed_move_is_resumed_and_nothing_is_lost_or_doubled() {
    let bed = Bed::new();
    push_lines(&bed, 0..3000).await;
    let all = ids(&bed, "q").await;
    let moving = ["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--batch", "5"];
    for least in [200, 1000] {
        let mut child = bed.command(&moving).spawn().unwrap();
        soon("something was moved", async || (arrived(&bed) >= least).then_some(())).await;
        child.kill().await.unwrap();
        let left = bed.counts("q").await;
        assert!(left[0] + left[2] > 0, "it was killed in the middle: {left:?}");
    }
    let there = target_counts(&bed, "q").await;
    let ran = bed.ok(&[&moving[..], &["--wait", "15s", "--json"]].concat()).await;
    let account = account(&ran, false);
    // What was copied and not removed when it was killed is recognised, and only that.
    let (moved, already) = (account["moved"].as_u64().unwrap(), account["already_there"].as_u64().unwrap());
    assert_eq!(there + moved, 3000, "{account}");
    assert!(already <= 10, "at most a batch for each kill: {account}");
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
    assert_eq!(target_ids(&bed, "q").await, all);
}

#[tokio::test]
async fn a_copy_that_was_not_removed_is_recognised() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "one", "two"]).await;
    let found = bed.ok(&["peek", "q", "-n", "1", "--json"]).await;
    // As a move that was killed between copy and removal leaves it.
    bed.run_with(&["--url", "sqlite:new.db", "push", "q", "--ndjson"], &found.bytes).await.ended_with(0);
    let ran = bed.ok(&["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--json"]).await;
    let account = account(&ran, false);
    assert_eq!((&account["moved"], &account["already_there"]), (&1.into(), &1.into()), "{account}");
    assert_eq!(target_counts(&bed, "q").await, 2);
}

#[tokio::test]
async fn what_a_killed_move_may_have_doubled_is_in_the_account_of_the_next() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "one", "two"]).await;
    // As a move that was killed between copy and removal leaves it, where a consumer of the target was quick.
    bed.ok(&["pull", "q", "--settle", "failed"]).await;
    let moving = ["move", "sqlite:jobs.db", "sqlite:new.db", "q"];
    let ran = bed.ok(&moving).await;
    assert!(ran.out.contains("moved 2, already there 0, delivered before 1;"), "{ran:?}");
    bed.ok(&["push", "q", "three"]).await;
    assert!(!bed.ok(&moving).await.out.contains("delivered before"), "there is nothing to say");
}

#[tokio::test]
async fn a_move_goes_on_while_producers_and_consumers_run() {
    let bed = Bed::new();
    push_lines(&bed, 0..200).await;
    let consumer =
        ["--url", "sqlite:new.db", "work", "q", "--slots", "4", "--exec", "echo $(cat) >> consumed-there"];
    // The consumer at the target makes it; the one at the source competes with the move.
    let new_place = bed.command(&consumer).spawn().unwrap();
    let old_place = bed
        .command(&["work", "q", "--slots", "1", "--exec", "echo $(cat) >> consumed-here"])
        .spawn()
        .unwrap();
    bed.line_of("consumed-here").await; // else the move could have all before it begins
    let moving = bed
        .command(&["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--batch", "7", "--wait", "12s", "--json"])
        .spawn()
        .unwrap();
    for round in 0..10 {
        push_lines(&bed, 200 + round * 20..220 + round * 20).await;
    }
    let account = account(&ended(moving).await.ended_with(0), false);
    let empty =
        async || (target_counts(&bed, "q").await == 0 && bed.counts("q").await == [0; 4]).then_some(());
    until("all is consumed", empty).await;
    signal(&new_place, Signal::TERM);
    signal(&old_place, Signal::TERM);
    ended(new_place).await.ended_with(0);
    ended(old_place).await.ended_with(0);
    let worked = |file: &str| -> Vec<u32> {
        let lines = std::fs::read_to_string(bed.path(file)).unwrap();
        lines.split_whitespace().map(|line| line.parse().unwrap()).collect()
    };
    let (at_source, at_target) = (worked("consumed-here"), worked("consumed-there"));
    assert!(
        !at_source.is_empty() && !at_target.is_empty(),
        "both worked: {} and {}",
        at_source.len(),
        at_target.len()
    );
    assert_eq!(account["moved"], at_target.len(), "{account}");
    let mut all = [at_source, at_target].concat();
    all.sort_unstable();
    assert_eq!(all, (0..400).collect::<Vec<_>>(), "each once");
}

#[tokio::test]
async fn an_interrupted_move_releases_what_it_holds_and_says_so() {
    let bed = Bed::new();
    push_lines(&bed, 0..2000).await;
    let command = ["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--batch", "5", "--json"];
    let child = bed.command(&command).spawn().unwrap();
    // More than it takes to find out whether both are one place.
    soon("something was moved", async || (arrived(&bed) >= 50).then_some(())).await;
    signal(&child, Signal::TERM);
    let ran = ended(child).await.ended_with(1);
    assert!(ran.err.contains("interrupted"), "{ran:?}");
    let account = account(&ran, false);
    let (moved, there) = (account["moved"].as_u64().unwrap(), target_counts(&bed, "q").await);
    assert_eq!(moved, there, "{account}");
    assert!(moved < 2000, "it stopped in the middle");
    assert_eq!(bed.counts("q").await, [2000 - moved, 0, 0, 0]);
    bed.ok(&command).await;
    assert_eq!(target_counts(&bed, "q").await, 2000);
}

#[tokio::test]
async fn what_the_target_refuses_stays_and_is_told() {
    let bed = Bed::new();
    bed.ok(&["--url", "sqlite:new.db", "push", "q", "first", "--dedup-key", "k"]).await;
    bed.ok(&["push", "q", "same key", "--dedup-key", "k"]).await;
    bed.run_with(&["push", "q"], &[b'x'; 9000]).await.ended_with(0);
    bed.ok(&["push", "q", "fine"]).await;
    let to = "sqlite:new.db?message_bytes=4096";
    let ran = bed.run(&["move", "sqlite:jobs.db", to, "q", "--json"]).await.ended_with(1);
    let account = account(&ran, false);
    assert_eq!((&account["moved"], &account["refused"]), (&1.into(), &2.into()), "{account}");
    assert!(
        ran.err.contains("the same deduplication key") && ran.err.contains("at most 4096"),
        "{}",
        ran.err
    );
    assert_eq!(bed.counts("q").await, [2, 0, 0, 0], "they are at the source again");
    let ran =
        bed.ok(&["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--without", "dedup-key", "--json"]).await;
    assert_eq!(ran.objects()[0]["moved"], 2, "{ran:?}");
}

#[tokio::test]
async fn what_falls_due_is_waited_for_if_wanted() {
    let bed = Bed::new();
    // What is due within two seconds is left where it is: on a busy machine it can fall due before the move looks, which proves nothing.
    let ran = until("a move looks before the message is due", async || {
        let pushed = std::time::Instant::now();
        bed.ok(&["push", "q", "soon", "--delay", "1900ms"]).await;
        let ran = bed.run(&["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--wait", "0s", "--json"]).await;
        let is_late = ran.objects()[0]["moved"] != 0 && pushed.elapsed() > Duration::from_millis(1900);
        (!is_late).then_some(ran)
    })
    .await;
    assert_eq!(
        (&ran.objects()[0]["moved"], &ran.objects()[0]["left"]["delayed"]),
        (&0.into(), &1.into()),
        "{ran:?}"
    );
    assert_eq!(ran.code, Some(1), "something is left: {ran:?}");
    let ran = bed.ok(&["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--wait", "8s", "--json"]).await;
    assert_eq!(ran.objects()[0]["moved"], 1, "{ran:?}");
}

#[tokio::test]
async fn a_paused_source_is_told() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    bed.ok(&["pause", "q"]).await;
    let ran = bed.run(&["move", "sqlite:jobs.db", "sqlite:new.db", "q"]).await.ended_with(1);
    assert!(ran.err.contains("paused") && ran.err.contains("resume"), "{ran:?}");
}

#[tokio::test]
async fn a_dry_run_moves_nothing_and_a_queue_can_change_its_name() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let dry = bed.ok(&["move", "sqlite:jobs.db", "sqlite:jobs.db", "q", "--as", "p", "--dry-run"]).await;
    assert!(dry.out.contains("moved 0") && dry.out.contains("left: ready 1"), "{dry:?}");
    bed.ok(&["move", "sqlite:jobs.db", "sqlite:jobs.db", "q", "--as", "p"]).await;
    assert_eq!(bed.ok(&["pull", "p"]).await.out, "x\n");
}

#[tokio::test]
async fn what_a_consumer_holds_at_the_source_is_left_and_no_success() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let mut child =
        bed.command(&["work", "q", "--exec", "echo began > began; exec sleep 1000"]).spawn().unwrap();
    bed.line_of("began").await;
    child.kill().await.unwrap();
    let ran = bed.run(&["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--wait", "0s", "--json"]).await;
    assert_eq!(ran.objects()[0]["left"]["leased"], 1, "{ran:?}");
    assert_eq!(ran.code, Some(1), "whoever removes the source now loses it: {ran:?}");
}

#[tokio::test]
async fn one_place_by_two_urls_is_told_and_keeps_its_messages() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "a", "b", "c"]).await;
    std::os::unix::fs::symlink("jobs.db", bed.path("link.db")).unwrap();
    for to in ["sqlite:./jobs.db", "sqlite:link.db", "sqlite:jobs.db?busy_timeout=9s"] {
        let ran = bed.run(&["move", "sqlite:jobs.db", to, "q"]).await.ended_with(2);
        assert!(ran.err.contains("same place"), "{ran:?}");
        assert_eq!(bed.counts("q").await, [3, 0, 0, 0], "{to}");
    }
    assert_eq!(bed.counts("anyqueue-move").await, [0; 4], "the probes are gone");
    bed.ok(&["move", "sqlite:jobs.db", "sqlite:new.db", "q"]).await;
    assert_eq!(
        bed.ok(&["--url", "sqlite:new.db", "stats", "anyqueue-move", "--json"]).await.objects()[0]["ready"],
        0
    );
}

#[tokio::test]
async fn two_moves_at_once_lose_no_delayed_message() {
    let bed = Bed::new();
    bed.run_with(&["push", "q", "--lines", "--delay", "1h"], &numbers(0..150)).await.ended_with(0);
    let all = ids(&bed, "q").await;
    let moving = ["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--batch", "5", "--wait", "0s", "--json"];
    let (one, other) = (bed.command(&moving).spawn().unwrap(), bed.command(&moving).spawn().unwrap());
    let (one, other) = (ended(one).await, ended(other).await);
    assert_eq!(target_ids(&bed, "q").await, all, "{one:?} {other:?}");
    assert_eq!(bed.counts("q").await, [0; 4], "{one:?} {other:?}");
}

#[tokio::test]
async fn what_is_refused_is_counted_once() {
    let bed = Bed::new();
    bed.ok(&["--url", "sqlite:new.db", "push", "q", "first", "--dedup-key", "k"]).await;
    bed.ok(&["push", "q", "same key", "--dedup-key", "k", "--delay", "1h"]).await;
    let ran = bed.run(&["move", "sqlite:jobs.db", "sqlite:new.db", "q", "--json"]).await.ended_with(1);
    assert_eq!(account(&ran, false)["refused"], 1, "{ran:?}");
}

#[tokio::test]
async fn a_moved_message_that_was_put_back_has_all_its_attempts() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let failing = ["work", "q", "--retries", "2", "--retry-delay", "1ms", "--exec", "exit 1", "--json"];
    let child = bed.command(&failing).spawn().unwrap();
    until("the message died", async || (bed.counts("q").await[3] == 1).then_some(())).await;
    signal(&child, Signal::TERM);
    ended(child).await.ended_with(0);
    bed.ok(&["dead", "redrive", "q"]).await;
    bed.ok(&["move", "sqlite:jobs.db", "sqlite:new.db", "q"]).await;
    let work = ["--url", "sqlite:new.db", "work", "q", "--once", "--exec", "echo $ANYQUEUE_ATTEMPT"];
    assert_eq!(bed.ok(&work).await.out, "1\n");
}

/// The target goes away in the middle, and what it did with the last copies is not known.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_move_whose_target_dies_accounts_for_all_and_is_resumed() {
    use anyqueue_testkit::{Fault, Proxy, Redis, start_if_installed};

    const MESSAGES: u64 = 2000;
    let Some(server) = start_if_installed(Redis::new().setting("appendfsync", "always")).await.unwrap()
    else {
        return;
    };
    let bed = Bed::new();
    push_lines(&bed, 0..2000).await;
    let all = ids(&bed, "q").await;
    let proxy = Proxy::start(server.addr()).unwrap();
    proxy.set(Fault::Delay(Duration::from_millis(50))).await.unwrap(); // time to see the first batches
    let slow = format!("redis://{}/", proxy.addr());
    let there = async || {
        let row = bed.ok(&["--url", server.url(), "stats", "q", "--json"]).await.objects().remove(0);
        row["ready"].as_u64().unwrap()
    };
    let moving =
        bed.command(&["move", "sqlite:jobs.db", &slow, "q", "--batch", "10", "--json"]).spawn().unwrap();
    soon("something was moved", async || (there().await > 0).then_some(())).await;
    server.kill().await.unwrap();
    let failed = ended(moving).await.ended_with(1);
    server.restart().await.unwrap();
    let first = account(&failed, false);
    let count = |account: &Value, name: &str| account[name].as_u64().unwrap();
    let (moved, unknown) = (count(&first, "moved"), count(&first, "unknown"));
    assert!(moved < MESSAGES && (1..=10).contains(&unknown), "{first}");
    let stored = there().await;
    assert!((moved..=moved + unknown).contains(&stored), "{stored} are there: {first}");
    // What was held is released at once.
    assert_eq!(bed.counts("q").await, [MESSAGES - moved, 0, 0, 0], "{first}");
    let second = account(&bed.ok(&["move", "sqlite:jobs.db", server.url(), "q", "--json"]).await, false);
    assert_eq!(
        moved + count(&second, "moved") + count(&second, "already_there"),
        MESSAGES,
        "{first} {second}"
    );
    assert_eq!(count(&second, "already_there"), stored - moved, "{first} {second}");
    let peeked = bed.ok(&["--url", server.url(), "peek", "q", "--max", "1000000", "--json"]).await;
    assert_eq!(distinct(&peeked), all);
}

#[tokio::test]
async fn the_mark_that_a_move_leaves_is_no_queue_of_anybody() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    bed.ok(&["move", "sqlite:jobs.db", "sqlite:new.db"]).await;
    let rows = bed.ok(&["--url", "sqlite:new.db", "stats", "--json"]).await.objects();
    assert_eq!(rows.iter().map(|row| row["queue"].as_str().unwrap()).collect::<Vec<_>>(), ["q"]);
}
