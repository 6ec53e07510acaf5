//! A ledger in a storage of its own: what `work` says of it at its start, and `doctor` at any time.

use serde_json::Value;

use crate::bed::{Bed, Ran};
use crate::doctor::verdict;
use crate::small_disk::SmallDisk;

const CHECK: &str = "ledger beside";

/// Runs a worker until nothing is left to do.
async fn work(bed: &Bed, ledger: &str) -> Ran {
    bed.run(&["work", "q", "--once", "--exec", "true", "--ledger-url", ledger]).await
}

async fn doctor(bed: &Bed, ledger: &str) -> Ran {
    bed.run(&["doctor", "--json", "--ledger-url", ledger]).await
}

/// The texts of a check's findings with this verdict.
fn texts<'a>(findings: &'a [Value], check: &str, verdict: &str) -> Vec<&'a str> {
    let found = findings.iter().filter(|f| f["check"] == check && f["verdict"] == verdict);
    found.map(|finding| finding["text"].as_str().unwrap()).collect()
}

/// Neither doctor nor a worker can use this ledger, and both say why; the message stays.
async fn is_refused(bed: &Bed, ledger: &str, code: i32, why: &str) {
    let refused = work(bed, ledger).await.ended_with(code);
    assert!(refused.err.contains(why) && refused.err.contains("the ledger at --ledger-url"), "{refused:?}");
    assert_eq!(bed.counts("q").await, [1, 0, 0, 0]);
    let found = doctor(bed, ledger).await.ended_with(3).objects();
    assert!(texts(&found, CHECK, "failed").concat().contains(why), "{found:?}");
    assert_eq!(verdict(&found, CHECK), ["failed"], "{found:?}");
    assert_eq!(verdict(&found, "health"), ["ok"], "the queue itself is well: {found:?}");
}

#[tokio::test]
async fn a_ledger_that_cannot_be_opened_is_found_by_doctor_and_stops_what_needs_it() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    is_refused(&bed, "sqlite:no-such-folder/ends.db", 2, "create it first").await;
}

#[tokio::test]
async fn a_ledger_of_a_newer_release_is_found_by_doctor_and_stops_the_worker() {
    let (bed, ledger) = (Bed::new(), "sqlite:ends.db");
    work(&bed, ledger).await.ended_with(0);
    let file = rusqlite::Connection::open(bed.path("ends.db")).unwrap();
    file.execute_batch("INSERT INTO anyqueue_migration VALUES (99, 'from the future', 0)").unwrap();
    drop(file);
    bed.ok(&["push", "q", "x"]).await;
    is_refused(&bed, ledger, 1, "newer release").await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_ledger_that_is_down_is_found_by_doctor_and_stops_the_worker() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    is_refused(&bed, "postgres://app@127.0.0.1:1/db", 1, "nothing listens there").await;
}

#[tokio::test]
async fn a_ledger_on_a_full_disk_is_told_of_by_doctor_and_when_the_worker_starts() {
    let (bed, ledger) = (Bed::new(), "sqlite:disk/ends.db");
    let test = "a_ledger_on_a_full_disk_is_told_of_by_doctor_and_when_the_worker_starts";
    let Some(disk) = SmallDisk::mount(bed.path("disk"), test) else { return };
    bed.ok(&["push", "q", "x"]).await;
    let fine = work(&bed, ledger).await.ended_with(0);
    assert!(!fine.err.contains("ledger:"), "{fine:?}");
    let found = doctor(&bed, ledger).await.ended_with(0).objects();
    assert_eq!((verdict(&found, CHECK), verdict(&found, "ledger room")), (vec!["ok"], vec!["ok"]));

    disk.fill();
    let found = doctor(&bed, ledger).await.ended_with(3).objects();
    assert_eq!(verdict(&found, "ledger room"), ["failed"], "{found:?}");
    assert_eq!(verdict(&found, "room"), ["ok"], "the queue is on another disk: {found:?}");
    assert_eq!(verdict(&found, CHECK), ["ok", "warning"], "{found:?}");
    assert!(texts(&found, CHECK, "warning")[0].contains("nearly full"), "{found:?}");
    // There is nothing to do, so that only its start can tell.
    let told = work(&bed, ledger).await.ended_with(0);
    assert!(told.err.contains("ledger: ") && told.err.contains("nearly full"), "{told:?}");
}
