//! Workers that are frozen for longer than their permits and beats count, and wake.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Child;

use crate::bed::{Bed, ended, signal, until};
use crate::limits::{holds, shown};
use crate::work::is_gone;

/// Beats and permits count for three times as long.
const BEAT: &str = "4s";
const COUNT: Duration = Duration::from_secs(12);
/// What a busy machine may add until those who are awake get their turn: still far less than the longer lease.
const LATE: Duration = Duration::from_secs(15);
/// Longer than a worker with a free permit takes to start what waits.
const TIME_TO_START: Duration = Duration::from_secs(5);
/// Says what began in which worker, and waits to be let go.
const WAIT: &str = "m=$(cat); echo \"begin $m $PPID $$\" >> log; while [ -d $PWD ] && [ ! -e open ]; do sleep 0.05; done; echo \"end $m $PPID $$\" >> log";

/// What is limited, and what comes first: the end of the permit or that of the lease.
struct Case {
    limit: [&'static str; 2],
    lease: &'static str,
    /// What the other worker runs while the first one is frozen.
    taken: &'static str,
    /// How the frozen worker counts its own task.
    counted: &'static str,
}

/// The lease lasts for longer than anybody is frozen: the task is stopped for its permit, and released.
const PERMIT_ENDS: Case = Case { limit: ["--queue", "q"], lease: "5m", taken: "y", counted: "interrupted" };
/// The lease has ended too: the other worker has the task by then.
const BOTH_END: Case = Case { limit: ["--each", "customer"], lease: "10s", taken: "x", counted: "lost" };

/// A line of the log: what happened to which message, in which worker, and the command's process.
#[derive(Debug)]
struct Said(Vec<String>);

impl Said {
    fn is(&self, what: &str, message: &str) -> bool {
        self.0[0] == what && self.0[1] == message
    }

    fn worker(&self) -> &str {
        &self.0[2]
    }

    fn command(&self) -> &str {
        &self.0[3]
    }
}

fn said(bed: &Bed) -> Vec<Said> {
    let log = std::fs::read_to_string(bed.path("log")).unwrap_or_default();
    log.lines().map(|line| Said(line.split(' ').map(str::to_owned).collect())).collect()
}

fn worker(bed: &Bed, name: &str, case: &Case) -> Child {
    let work = ["work", "q", "--slots", "2", "--name", name, "--beat-every", BEAT, "--lease", case.lease];
    bed.command(&[&work[..], &["--json", "--exec", WAIT]].concat()).spawn().unwrap()
}

async fn push(bed: &Bed, message: &str) {
    bed.ok(&["push", "q", message, "--header", "customer=c"]).await;
}

/// Who is registered, as which process.
async fn registered(bed: &Bed) -> Vec<(String, u64)> {
    let all = bed.run(&["workers", "list", "--json"]).await.objects();
    all.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), one["pid"].as_u64().unwrap())).collect()
}

async fn a_frozen_worker_gives_way_and_starts_nothing_when_it_wakes(bed: &Bed, case: &Case) {
    bed.ok(&["limits", "put", "l", case.limit[0], case.limit[1], "--cap", "1"]).await;
    push(bed, "x").await;
    let frozen = worker(bed, "frozen", case);
    until("it runs x", async || (said(bed).len() == 1).then_some(())).await;
    until("it has the permit", async || holds(&shown(bed).await, "frozen").then_some(())).await;
    let other = worker(bed, "other", case);
    let both = [&frozen, &other].map(|worker| u64::from(worker.id().unwrap()));
    let both = [("frozen".to_owned(), both[0]), ("other".to_owned(), both[1])];
    until("both are registered", async || (registered(bed).await == both).then_some(())).await;
    if case.taken != "x" {
        push(bed, case.taken).await;
    }

    signal(&frozen, Signal::STOP);
    let since = Instant::now();
    until("the other one has its permit", async || (said(bed).len() == 2).then_some(())).await;
    assert!(since.elapsed() <= COUNT + LATE, "after {:?}", since.elapsed());
    let log = said(bed);
    assert!(log[1].is("begin", case.taken) && log[1].worker() == both[1].1.to_string(), "{log:?}");
    until("the frozen one is missed", async || {
        let lost = bed.run(&["workers", "list", "--lost", "--json"]).await.objects();
        lost.iter().any(|one| one["name"] == "frozen" && one["pid"] == both[0].1).then_some(())
    })
    .await;
    if case.taken == "x" {
        push(bed, "y").await;
    }

    signal(&frozen, Signal::CONT);
    let since = Instant::now();
    until("what it runs is stopped", async || is_gone(log[0].command()).then_some(())).await;
    assert!(since.elapsed() <= LATE, "after {:?}", since.elapsed());
    until("it registers anew, once", async || (registered(bed).await == both).then_some(())).await;
    tokio::time::sleep(TIME_TO_START).await;
    assert_eq!(said(bed).len(), 2, "the other one has the only permit: {:?}", said(bed));
    let limit = shown(bed).await;
    assert!(holds(&limit, "other") && !holds(&limit, "frozen") && limit["held"] == 1, "{limit}");
    finish(bed, case, [frozen, other], &both[1].1.to_string()).await;
}

/// Lets the commands go. Each message is done once, and nothing is left of the two.
async fn finish(bed: &Bed, case: &Case, workers: [Child; 2], other: &str) {
    std::fs::write(bed.path("open"), "").unwrap();
    until("all is done", async || (bed.counts("q").await == [0; 4]).then_some(())).await;
    let log = said(bed);
    for message in ["x", "y"] {
        let ends: Vec<_> = log.iter().filter(|said| said.is("end", message)).collect();
        assert_eq!(ends.len(), 1, "{log:?}");
        assert!(message != case.taken || ends[0].worker() == other, "{log:?}");
    }
    let mut summaries: Vec<Value> = Vec::new();
    for worker in workers {
        signal(&worker, Signal::TERM);
        summaries.extend(ended(worker).await.ended_with(0).objects());
    }
    assert_eq!(summaries[0][case.counted], 1, "{summaries:?}");
    let limit = shown(bed).await;
    assert!(limit["held"] == 0 && limit["holders"].as_array().unwrap().is_empty(), "{limit}");
    bed.run(&["workers", "list"]).await.ended_with(4);
}

async fn both(queue: &Bed, each: &Bed) {
    tokio::join!(
        a_frozen_worker_gives_way_and_starts_nothing_when_it_wakes(queue, &PERMIT_ENDS),
        a_frozen_worker_gives_way_and_starts_nothing_when_it_wakes(each, &BOTH_END),
    );
}

#[tokio::test]
async fn a_frozen_worker_on_sqlite() {
    both(&Bed::new(), &Bed::new()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_frozen_worker_on_postgres() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Postgres::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    let [queue, each] = ["queue", "each"].map(|what| Bed::within(url, "schema", &format!("frozen_{what}")));
    both(&queue, &each).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_frozen_worker_on_redis() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Redis::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    let [queue, each] = ["queue", "each"].map(|what| Bed::within(url, "prefix", &format!("frozen_{what}")));
    both(&queue, &each).await;
}
