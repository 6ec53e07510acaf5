//! `anyqueue tasks`, and what `work` and `pull` keep for it.

use anyqueue::{Keep, Queue, QueueMessageStatus, TaskReport};
use serde_json::{Value, json};

use crate::bed::Bed;

const UNKNOWN: &str = "00000000-0000-7000-8000-000000000000";

#[tokio::test]
async fn where_nothing_is_known_nothing_is_shown() {
    let bed = Bed::at("memory:");
    let none = bed.run(&["tasks", "list", "q"]).await.ended_with(4);
    assert!(none.out.is_empty() && none.err.contains("no such task"), "{none:?}");
    bed.run(&["tasks", "show", "q", UNKNOWN]).await.ended_with(4);
    bed.run(&["tasks", "wait", "q", UNKNOWN, "--for", "10ms"]).await.ended_with(4);
    assert_eq!(bed.ok(&["tasks", "count", "q"]).await.out, "0\n");
    let counted =
        bed.ok(&["tasks", "count", "q", "--json", "--watch", "10ms", "--rounds", "2"]).await.objects();
    assert_eq!(counted, vec![json!({ "queue": "q", "count": 0, "exact": true }); 2]);
    assert_eq!(bed.ok(&["tasks", "delete", "q", "--yes"]).await.out, "deleted 0\n");
    let freed = bed.ok(&["ledger", "purge", "--json"]).await.objects();
    assert_eq!(freed, [json!({ "freed": 0, "more": false })]);
}

#[tokio::test]
async fn wrong_arguments_are_explained_and_nothing_is_deleted_unasked() {
    let bed = Bed::at("memory:");
    let wrong = bed.run(&["tasks", "list", "q", "--state", "done"]).await.ended_with(2);
    assert!(wrong.err.contains("succeeded") && wrong.err.contains("timed_out"), "{wrong:?}");
    let wrong = bed.run(&["tasks", "list", "q", "--since", "soon"]).await.ended_with(2);
    assert!(wrong.err.contains("2h"), "{wrong:?}");
    let unasked = bed.run(&["tasks", "delete", "q", "--state", "succeeded"]).await.ended_with(2);
    assert!(unasked.err.contains("--yes"), "{unasked:?}");
    assert!(unasked.err.contains("also those that wait"), "{unasked:?}");
    bed.ok(&["tasks", "delete", "q", "--state", "queued", "--yes"]).await;
    bed.run(&["tasks", "count", "q", "--cap", "0"]).await.ended_with(2);
    bed.run(&["tasks", "show", "q", "no-id"]).await.ended_with(2);
    bed.run(&["work", "q", "--exec", "true", "--once", "--keep-success", "soon"]).await.ended_with(2);
    let alone = bed.run(&["work", "q", "--exec", "true", "--once", "--keep-output"]).await.ended_with(2);
    assert!(alone.err.contains("--ledger"), "{alone:?}");
}

#[tokio::test]
async fn a_filter_that_makes_the_backend_read_everything_says_so() {
    let bed = Bed::at("memory:");
    let indexed = bed.ok(&["tasks", "count", "q", "--state", "failed", "--since", "2h"]).await;
    assert!(!indexed.err.contains("no index"), "{indexed:?}");
    let scanned = bed.ok(&["tasks", "count", "q", "--kind", "mail"]).await;
    assert!(scanned.err.contains("no index covers this filter"), "{scanned:?}");
    let quiet = bed.ok(&["tasks", "count", "q", "--kind", "mail", "--quiet"]).await;
    assert!(quiet.err.is_empty(), "{quiet:?}");
}

/// A queue of three tasks, processed: one succeeds, one dies, and one waits.
async fn processed(keep: &[&str]) -> (Bed, Vec<String>) {
    let bed = Bed::new();
    let mut ids = Vec::new();
    for (payload, more) in
        [("fine", ["--kind", "good"]), ("bad", ["--kind", "evil"]), ("later", ["--delay", "1h"])]
    {
        let said = bed.ok(&["push", "q", payload, more[0], more[1], "--json"]).await.objects().remove(0);
        ids.push(said["id"].as_str().unwrap().to_owned());
    }
    let exec = "read it; echo \"$it\" was read; echo \"no luck with $it\" >&2; test \"$it\" = fine";
    let work = ["work", "q", "--once", "--retries", "0", "--slots", "1", "--name", "w", "--exec", exec];
    bed.ok(&[&work, keep].concat()).await;
    (bed, ids)
}

async fn listed(bed: &Bed, filter: &[&str]) -> Vec<Value> {
    bed.run(&[&["tasks", "list", "q", "--json"], filter].concat()).await.objects()
}

fn ids_of(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_lives_is_dead_or_has_ended_is_listed_counted_and_found() {
    let (bed, ids) = processed(&["--ledger", "--keep-output"]).await;
    let all = listed(&bed, &[]).await;
    let states: Vec<_> = all.iter().map(|line| line["state"].clone()).collect();
    assert_eq!(states, ["scheduled", "failed", "succeeded"]);
    assert_eq!(ids_of(&all), [&ids[2], &ids[1], &ids[0]]);

    for (filter, place) in [
        (["--state", "succeeded"], 0),
        (["--state", "failed"], 1),
        (["--state", "scheduled"], 2),
        (["--kind", "good"], 0),
        (["--error", "no luck with bad"], 1),
    ] {
        assert_eq!(ids_of(&listed(&bed, &filter).await), [&ids[place]], "{filter:?}");
    }
    assert_eq!(ids_of(&listed(&bed, &["--worker", "w"]).await), [&ids[1], &ids[0]]);
    assert_eq!(listed(&bed, &["--since", "1h"]).await.len(), 2);
    assert_eq!(listed(&bed, &["--before", "1h"]).await.len(), 0);
    assert_eq!(listed(&bed, &["--limit", "1"]).await.len(), 1);
    assert_eq!(bed.ok(&["tasks", "count", "q"]).await.out, "3\n");
    assert_eq!(bed.ok(&["tasks", "count", "q", "--cap", "2"]).await.out, "at least 2\n");
    let table = bed.ok(&["tasks", "list", "q", "--state", "succeeded"]).await.out;
    assert!(table.contains("good") && table.contains(" ago") && table.lines().count() == 2, "{table}");
}

#[tokio::test]
async fn a_task_is_shown_with_its_result_and_its_errors() {
    let (bed, ids) = processed(&["--ledger", "--keep-output"]).await;
    let done = bed.ok(&["tasks", "show", "q", &ids[0], "--json"]).await.objects().remove(0);
    assert_eq!((&done["state"], &done["result"]), (&json!("succeeded"), &json!("fine was read\n")));
    assert_eq!((&done["attempt"], &done["worker"]), (&json!(1), &json!("w")));
    assert!(done["message"].is_null() && done["ended_at"].is_string() && done["expires_at"].is_string());
    assert_eq!(bed.ok(&["tasks", "show", "q", &ids[0], "--raw"]).await.bytes, b"fine was read\n");
    let shown = bed.ok(&["tasks", "show", "q", &ids[0]]).await.out;
    assert!(shown.contains("succeeded") && shown.ends_with("fine was read\n\n"), "{shown}");

    let dead = bed.ok(&["tasks", "show", "q", &ids[1], "--json"]).await.objects().remove(0);
    assert_eq!((&dead["state"], &dead["message"]["payload"]), (&json!("failed"), &json!("bad")));
    assert!(dead["reason"].as_str().unwrap().contains("no luck with bad"), "{dead}");
    assert!(dead["worker"] == "w" && dead["ran_ms"].is_u64(), "{dead}");
    bed.run(&["tasks", "show", "q", &ids[1], "--raw"]).await.ended_with(4);
}

#[tokio::test]
async fn how_far_a_task_had_come_is_shown() {
    let bed = Bed::new();
    let said = bed.ok(&["push", "q", "x", "--json"]).await.objects().remove(0);
    let storage = anyqueue_sqlite::SqliteQueue::open(bed.path("jobs.db")).await.unwrap();
    let queue = Queue::builder(storage).ledger(Keep::default()).build().unwrap();
    let mut held = queue.pull("q").await.unwrap();
    held[0].report(TaskReport::new().with_progress("8 of 9")).unwrap();
    held[0].settle(QueueMessageStatus::Processed).await.unwrap();
    queue.close().await.unwrap();
    let show = ["tasks", "show", "q", said["id"].as_str().unwrap()];
    let line = bed.ok(&[&show[..], &["--json"]].concat()).await.objects().remove(0);
    assert_eq!(line["progress"], "8 of 9");
    let shown = bed.ok(&show).await.out;
    assert!(shown.contains("progress") && shown.contains("8 of 9"), "{shown}");
}

#[tokio::test]
async fn waiting_for_a_task_tells_by_its_exit_code_what_became_of_it() {
    let (bed, ids) = processed(&["--ledger", "--keep-output"]).await;
    assert_eq!(bed.ok(&["tasks", "wait", "q", &ids[0], "--raw"]).await.out, "fine was read\n");
    let failed = bed.run(&["tasks", "wait", "q", &ids[1], "--json"]).await.ended_with(3);
    assert_eq!(failed.objects().remove(0)["state"], "failed");
    let late = bed.run(&["tasks", "wait", "q", &ids[2], "--for", "50ms", "--json"]).await.ended_with(5);
    assert_eq!(late.objects().remove(0)["state"], "scheduled");
}

#[tokio::test]
async fn waiting_ends_when_another_process_has_settled_the_task() {
    let bed = Bed::new();
    let said = bed.ok(&["push", "q", "x", "--json"]).await.objects().remove(0);
    let wait = bed.command(&["tasks", "wait", "q", said["id"].as_str().unwrap(), "--for", "1m", "--raw"]);
    let mut wait = wait;
    let waiting = crate::bed::ended(wait.spawn().unwrap());
    let work = async {
        bed.ok(&["work", "q", "--once", "--ledger", "--keep-output", "--exec", "printf done"]).await;
    };
    let (waited, ()) = tokio::join!(waiting, work);
    assert_eq!(waited.ended_with(0).bytes, b"done");
}

#[tokio::test]
async fn a_filter_deletes_what_waits_is_dead_or_has_ended() {
    let (bed, ids) = processed(&["--ledger"]).await;
    let delete = async |state: &str| {
        let said = bed.ok(&["tasks", "delete", "q", "--state", state, "--yes", "--json"]).await.objects();
        ["live", "dead", "ended", "held", "deleted"].map(|field| said[0][field].as_u64().unwrap())
    };
    assert_eq!(delete("succeeded").await, [0, 0, 1, 0, 1]);
    assert_eq!(ids_of(&listed(&bed, &[]).await), [&ids[2], &ids[1]]);
    bed.run(&["tasks", "show", "q", &ids[0]]).await.ended_with(4);
    assert_eq!(delete("scheduled").await, [1, 0, 0, 0, 1]);
    assert_eq!(bed.counts("q").await, [0, 0, 0, 1]);
    assert_eq!(delete("queued").await, [0; 5]);
    assert_eq!(bed.ok(&["tasks", "delete", "q", "--yes"]).await.out, "deleted 1: 1 dead\n");
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
    assert!(listed(&bed, &[]).await.is_empty());
}

#[tokio::test]
async fn without_a_ledger_no_end_is_kept_and_a_time_that_is_over_is_over() {
    let (bed, ids) = processed(&[]).await;
    assert_eq!(ids_of(&listed(&bed, &[]).await), [&ids[2], &ids[1]]);
    let (bed, ids) = processed(&["--keep-success", "0s"]).await;
    assert_eq!(ids_of(&listed(&bed, &[]).await), [&ids[2], &ids[1]]);
    let (bed, ids) = processed(&["--keep-success", "1ms"]).await;
    crate::bed::until("the end lapses", async || (listed(&bed, &[]).await.len() == 2).then_some(())).await;
    bed.run(&["tasks", "show", "q", &ids[0]]).await.ended_with(4);
    assert_eq!(bed.ok(&["ledger", "purge"]).await.out, "freed 1\n");
    assert_eq!(bed.ok(&["ledger", "purge"]).await.out, "freed 0\n");
}

#[tokio::test]
async fn what_is_too_large_to_keep_is_no_failure() {
    let bed = Bed::new();
    let said = bed.ok(&["push", "q", "x", "--json"]).await.objects().remove(0);
    let id = said["id"].as_str().unwrap();
    let ran = bed
        .ok(&["work", "q", "--once", "--ledger", "--keep-output", "--exec", "head -c 262145 /dev/zero"])
        .await;
    assert!(ran.out.is_empty() && ran.err.contains("no result is kept"), "{}", ran.err);
    let done = bed.ok(&["tasks", "show", "q", id, "--json"]).await.objects().remove(0);
    assert_eq!((&done["state"], done.get("result")), (&json!("succeeded"), None));

    let said = bed.ok(&["push", "q", "x", "--json"]).await.objects().remove(0);
    let id = said["id"].as_str().unwrap();
    bed.ok(&["work", "q", "--once", "--ledger", "--keep-output", "--exec", "head -c 262144 /dev/zero"]).await;
    assert_eq!(bed.ok(&["tasks", "show", "q", id, "--raw"]).await.bytes, vec![0; 262_144]);
}

#[tokio::test]
async fn what_is_pulled_by_hand_has_an_end_too() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "done", "dropped"]).await;
    bed.ok(&["pull", "q", "--ledger"]).await;
    bed.ok(&["pull", "q", "--ledger", "--settle", "cancelled"]).await;
    let states: Vec<_> = listed(&bed, &[]).await.iter().map(|line| line["state"].clone()).collect();
    assert_eq!(states, ["cancelled", "succeeded"]);
}

#[tokio::test]
async fn a_list_is_repeated_while_it_is_watched() {
    let bed = Bed::at("memory:");
    let watched = bed.ok(&["tasks", "list", "q", "--watch", "10ms", "--rounds", "3"]).await;
    assert_eq!(watched.err.matches("no such task").count(), 3, "{watched:?}");
    bed.run(&["tasks", "list", "q", "--rounds", "3"]).await.ended_with(2);
}

#[tokio::test]
async fn dead_and_delayed_tasks_run_again_when_they_are_retried() {
    let (bed, ids) = processed(&["--ledger"]).await;
    let outcome = |line: &Value| line["outcome"].as_str().unwrap().to_owned();
    let named = bed.run(&["tasks", "retry", "q", &ids[0], &ids[1], &ids[2], &ids[1], "--json"]).await;
    let lines = named.ended_with(3).objects();
    assert_eq!(ids_of(&lines), ids.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(lines.iter().map(outcome).collect::<Vec<_>>(), ["left", "put_back", "due_now"]);
    assert!(lines[0]["why"].as_str().unwrap().contains("push it again"), "{lines:?}");
    assert_eq!(bed.counts("q").await, [2, 0, 0, 0]);

    let waiting = bed.run(&["tasks", "retry", "q", &ids[1], "--json"]).await.ended_with(3).objects();
    assert!(waiting[0]["why"].as_str().unwrap().contains("waits for a worker"), "{waiting:?}");
    bed.run(&["tasks", "retry", "q", UNKNOWN]).await.ended_with(4);
}

#[tokio::test]
async fn a_filter_chooses_what_is_retried_once_it_is_confirmed() {
    let (bed, _) = processed(&["--ledger"]).await;
    let unasked = bed.run(&["tasks", "retry", "q", "--state", "failed"]).await.ended_with(2);
    assert!(unasked.err.contains("--yes"), "{unasked:?}");
    bed.run(&["tasks", "retry", "q", "--state", "failed", "--kind", "good", "--yes"]).await.ended_with(4);
    assert_eq!(bed.counts("q").await, [0, 1, 0, 1]);
    let retried = bed.ok(&["tasks", "retry", "q", "--state", "failed", "--kind", "evil", "--yes"]).await;
    assert!(retried.out.ends_with(" put back\n"), "{retried:?}");
    assert_eq!(bed.counts("q").await, [1, 1, 0, 0]);
}

#[tokio::test]
async fn ended_tasks_are_summed_up_by_step_of_time() {
    let (bed, _) = processed(&["--ledger", "--keep-success", "0s"]).await;
    let told = bed.ok(&["tasks", "stats", "q", "--since", "1h", "--by", "minute", "--json"]).await.objects();
    let (total, steps) = told.split_last().unwrap();
    assert_eq!((&total["queue"], &total["is_total"]), (&json!("q"), &json!(true)));
    assert_eq!(
        (&total["succeeded"], &total["failed"], &total["cancelled"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!(total["failure_rate"], json!(0.5));
    assert!(total["ran_p95_below_us"].as_u64() >= total["ran_p50_below_us"].as_u64(), "{total}");
    let sum: u64 = steps.iter().map(|step| step["succeeded"].as_u64().unwrap()).sum();
    assert!(sum == 1 && steps.iter().all(|step| step["at"].is_string()), "{steps:?}");

    let good = bed.ok(&["tasks", "stats", "q", "--kind", "good", "--json"]).await.objects();
    let total = good.last().unwrap();
    assert_eq!(
        (&total["kind"], &total["succeeded"], &total["failed"]),
        (&json!("good"), &json!(1), &json!(0))
    );
    let table = bed.ok(&["tasks", "stats", "q"]).await.out;
    let last = table.lines().last().unwrap();
    assert!(table.contains("failed %") && last.starts_with("total") && last.contains("50.0"), "{table}");

    let none = bed.ok(&["tasks", "stats", "nothing", "--json"]).await.objects();
    assert_eq!((none.len(), &none[0]["succeeded"], &none[0]["failure_rate"]), (1, &json!(0), &Value::Null));
    let early = bed.run(&["tasks", "stats", "q", "--since", "9d"]).await;
    assert!(early.err.contains("from a later time on"), "{early:?}");
    let many = bed.run(&["tasks", "stats", "q", "--since", "3d", "--by", "minute"]).await;
    assert!(many.err.contains("for a longer step"), "{many:?}");
}
