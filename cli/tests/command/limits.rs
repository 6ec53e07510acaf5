//! `anyqueue limits`: set, shown, and obeyed by real workers, one of them killed.

#[cfg(any(feature = "postgres", feature = "redis"))]
use std::time::Duration;

use serde_json::Value;
use tokio::process::Child;

use crate::bed::{Bed, ended, numbers, until};

/// How long permits of a killed worker count.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) const FREED: Duration = Duration::from_secs(15);
/// What a busy machine may add until those who are alive get their turn.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) const LATE: Duration = Duration::from_secs(10);

pub(crate) async fn shown(bed: &Bed) -> Value {
    bed.ok(&["limits", "show", "l", "--json"]).await.objects().remove(0)
}

#[tokio::test]
async fn a_limit_is_set_changed_shown_and_deleted() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    bed.run(&["limits", "list"]).await.ended_with(4);
    bed.run(&["limits", "show", "l"]).await.ended_with(4);
    bed.run(&["limits", "delete", "l"]).await.ended_with(4);

    bed.ok(&["limits", "put", "l", "--queue", "q", "--cap", "5"]).await;
    let put =
        bed.ok(&["limits", "put", "l", "--queue", "q", "--rate", "90/m", "--burst", "7", "--json"]).await;
    let put = put.objects().remove(0);
    assert_eq!(
        (&put["limit"], &put["rate"]["per_second"], &put["rate"]["burst"]),
        (&"l".into(), &1.5.into(), &7.into())
    );
    let limit = shown(&bed).await;
    assert_eq!(
        (&limit["cap"], &limit["available"], &limit["revision"]),
        (&Value::Null, &7.into(), &2.into())
    );
    let listed = bed.ok(&["limits", "list"]).await.out;
    assert!(listed.contains("1.5/s") && listed.contains('7'), "{listed}");
    assert_eq!(bed.ok(&["limits", "list", "--json"]).await.objects().len(), 1);
    assert!(bed.ok(&["limits", "show", "l"]).await.err.contains("7 may start now"));

    assert_eq!(bed.ok(&["limits", "delete", "l"]).await.out.trim(), "deleted l");
    bed.run(&["limits", "list"]).await.ended_with(4);
}

#[tokio::test]
async fn what_makes_no_limit_is_refused() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let put = ["limits", "put", "l", "--queue", "q"];
    for bad in [
        &[][..],
        &["--cap", "0"],
        &["--rate", "5"],
        &["--rate", "x/s"],
        &["--rate", "-1/s"],
        &["--burst", "1"],
        &["--cap", "1", "--kind", "k"],
        &["--cap", "1", "--each", "customer"],
    ] {
        let ran = bed.run(&[&put[..], bad].concat()).await.ended_with(2);
        assert!(!ran.err.is_empty());
    }
    bed.run(&["limits", "list"]).await.ended_with(4);
}

/// Those after the first few wait to be let go, so that a worker holds permits until then. Appended in one write each: lines stay whole.
const SOME_WAIT: &str = "m=$(cat); echo start >> log; \
    while [ ${m:-0} -ge 9 ] && [ -d $PWD ] && [ ! -e open ]; do sleep 0.05; done; sleep 0.2; echo end >> log";
/// None ends before two have begun.
const TWO_AT_ONCE: &str = "echo start >> log; \
    while [ -d $PWD ] && [ $(grep -c start log) -lt 2 ]; do sleep 0.05; done; echo end >> log";

pub(crate) fn worker(bed: &Bed, name: &str) -> Child {
    worker_of(bed, name, SOME_WAIT, &[])
}

fn worker_of(bed: &Bed, name: &str, exec: &str, more: &[&str]) -> Child {
    let work = ["work", "q", "--slots", "4", "--lease", "15s", "--name", name, "--exec", exec];
    bed.command(&[&work[..], more].concat()).spawn().unwrap()
}

/// Lets those go that wait.
pub(crate) fn open(bed: &Bed) {
    std::fs::write(bed.path("open"), "").unwrap();
}

/// The most commands that ran at once, by what they wrote, and how many have ended.
pub(crate) fn most_and_ended(bed: &Bed) -> (usize, usize) {
    let log = std::fs::read_to_string(bed.path("log")).unwrap_or_default();
    let (mut running, mut most, mut ended) = (0_usize, 0, 0);
    for line in log.lines() {
        if line == "start" {
            running += 1;
        } else {
            running -= 1;
            ended += 1;
        }
        most = most.max(running);
    }
    (most, ended)
}

pub(crate) fn holds(limit: &Value, name: &str) -> bool {
    limit["holders"].as_array().unwrap().iter().any(|holder| holder["who"] == name && holder["held"] != 0)
}

#[tokio::test]
async fn three_workers_one_of_them_killed_never_exceed_a_cap_and_do_everything() {
    const MESSAGES: usize = 90;
    let bed = Bed::new();
    bed.run_with(&["push", "q", "--lines"], &numbers(0..MESSAGES)).await.ended_with(0);
    bed.ok(&["limits", "put", "l", "--queue", "q", "--cap", "3"]).await;
    let mut killed = worker(&bed, "killed");
    until("the first holds permits and works", async || {
        (most_and_ended(&bed).1 > 3 && holds(&shown(&bed).await, "killed")).then_some(())
    })
    .await;
    let others = [worker(&bed, "b"), worker(&bed, "c")];
    killed.kill().await.unwrap();
    open(&bed);
    until("its permits are free", async || (!holds(&shown(&bed).await, "killed")).then_some(())).await;
    until("everything is done", async || (bed.counts("q").await == [0; 4]).then_some(())).await;
    let (most, ended_commands) = most_and_ended(&bed);
    assert!((2..=3).contains(&most), "{most}");
    assert!(ended_commands >= MESSAGES, "{ended_commands}");
    for other in &others {
        crate::bed::signal(other, rustix::process::Signal::TERM);
    }
    for other in others {
        ended(other).await.ended_with(0);
    }
    assert!(shown(&bed).await["holders"].as_array().unwrap().is_empty(), "who ends gives everything back");
}

#[tokio::test]
async fn a_worker_can_leave_limits_out_and_waits_for_permits_until_the_queue_is_done() {
    let bed = Bed::new();
    bed.run_with(&["push", "q", "--lines"], &numbers(0..6)).await.ended_with(0);
    bed.ok(&["limits", "put", "l", "--queue", "q", "--cap", "1"]).await;
    ended(worker_of(&bed, "a", SOME_WAIT, &["--once"])).await.ended_with(0);
    assert_eq!(most_and_ended(&bed), (1, 6));
    bed.run_with(&["push", "q", "--lines"], &numbers(0..8)).await.ended_with(0);
    std::fs::remove_file(bed.path("log")).unwrap();
    ended(worker_of(&bed, "a", TWO_AT_ONCE, &["--once", "--no-limits"])).await.ended_with(0);
    assert!(most_and_ended(&bed).0 > 1);
}

#[tokio::test]
async fn each_value_of_a_header_has_a_limit_of_its_own() {
    let bed = Bed::new();
    for customer in ["a", "a", "a", "b"] {
        bed.ok(&["push", "q", customer, "--header", &format!("customer={customer}")]).await;
    }
    bed.ok(&["limits", "put", "l", "--each", "customer", "--cap", "1"]).await;
    let exec = "it=$(cat); echo $it >> began; while [ -d $PWD ] && [ ! -e open ]; do sleep 0.05; done";
    let mut worker =
        bed.command(&["work", "q", "--slots", "4", "--name", "w", "--exec", exec]).spawn().unwrap();
    let began = || {
        let mut began: Vec<_> = std::fs::read_to_string(bed.path("began"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        began.sort();
        began
    };
    until("one of each has begun", async || (began() == ["a", "b"]).then_some(())).await;
    until("the others wait", async || (bed.counts("q").await == [0, 2, 2, 0]).then_some(())).await;
    let limit = shown(&bed).await;
    assert_eq!((&limit["of"]["header"], &limit["held"]), (&"customer".into(), &2.into()), "{limit}");
    assert_eq!(limit["keys"].as_array().unwrap().len(), 2, "{limit}");
    let text = bed.ok(&["limits", "show", "l"]).await;
    assert!(text.err.contains("l limits each customer, 1 at once each, 2 held"), "{text:?}");
    assert_eq!(began(), ["a", "b"]);
    std::fs::write(bed.path("open"), "").unwrap();
    until("all are done", async || (bed.counts("q").await == [0; 4]).then_some(())).await;
    assert_eq!(began(), ["a", "a", "a", "b"]);
    worker.kill().await.unwrap();
}
