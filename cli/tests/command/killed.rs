//! Workers on real servers that are killed and frozen: who runs their tasks, who is shown as lost, and that schedules and limits hold.

use std::time::Duration;

use rustix::process::Signal;

use crate::bed::{Bed, ended, numbers, signal, until, within};
use crate::limits::{FREED, LATE};
use crate::{cron, limits, values};

/// A worker's tasks come back within its lease, and it is missed when its beats have not counted: as documented, without any option.
const TASKS_BACK: Duration = Duration::from_secs(30);
const MISSED: Duration = Duration::from_secs(15);
/// Longer than a tick is leased.
const FROZEN: Duration = Duration::from_secs(13);

async fn a_killed_workers_task_runs_elsewhere_and_it_is_missed(bed: &Bed) {
    bed.ok(&["push", "tasks", "x"]).await;
    let work = ["work", "tasks", "--name"];
    let hang = "echo begun > begun; exec sleep 40";
    let mut killed = bed.command(&[&work[..], &["killed", "--exec", hang]].concat()).spawn().unwrap();
    bed.line_of("begun").await;
    let _other = bed.command(&[&work[..], &["other", "--exec", "cat > done"]].concat()).spawn().unwrap();
    until("both are listed", async || {
        (bed.run(&["workers", "list", "--json"]).await.objects().len() == 2).then_some(())
    })
    .await;
    killed.kill().await.unwrap();
    let missed = within(MISSED + LATE, "it is missed", async || {
        let lost = bed.run(&["workers", "list", "--lost", "--json"]).await.objects();
        lost.iter().any(|worker| worker["name"] == "killed").then_some(())
    });
    let done = within(TASKS_BACK + LATE, "its task is done by the other one", async || {
        std::fs::read_to_string(bed.path("done")).ok().filter(|done| done == "x")
    });
    tokio::join!(missed, done);
    until("nothing is left of it", async || (bed.counts("tasks").await == [0; 4]).then_some(())).await;
}

async fn of_three_schedulers_one_is_killed_and_one_frozen_and_each_time_is_run_once(bed: &Bed) {
    for name in ["a", "b"] {
        let put = ["cron", "put", name, "* * * * * *", "--queue", "times", "--running", "allow"];
        bed.ok(&[&put[..], &["--missed", "all:99"]].concat()).await;
    }
    let work = ["work", "times", "--cron", "--lease", "5s", "--exec", cron::NOTE];
    let [frozen, mut killed, other] = [(); 3].map(|()| bed.command(&work).spawn().unwrap());
    until("some are run", async || (cron::runs(bed).len() >= 8).then_some(())).await;
    signal(&frozen, Signal::STOP);
    tokio::time::sleep(Duration::from_secs(1)).await;
    killed.kill().await.unwrap();
    tokio::time::sleep(FROZEN).await;
    signal(&frozen, Signal::CONT);
    let before = cron::runs(bed).len();
    until("they go on", async || (cron::runs(bed).len() >= before + 10).then_some(())).await;
    for worker in [frozen, other] {
        signal(&worker, Signal::TERM);
        ended(worker).await.ended_with(0);
    }
    for name in ["a", "b"] {
        bed.ok(&["cron", "delete", name]).await;
    }
    // What the killed one had is run by another.
    bed.ok(&["work", "times", "--once", "--exec", cron::NOTE]).await;
    let runs = cron::runs(bed);
    assert!(runs.values().all(|ids| ids.len() == 1), "{runs:?}");
    assert_no_gaps(&runs.into_keys().collect::<Vec<_>>());
}

/// Each second of each schedule is there.
fn assert_no_gaps(runs: &[String]) {
    let parsed: Vec<_> = runs
        .iter()
        .map(|run| {
            let (name, at) = run.split_once(' ').unwrap();
            (name, humantime::parse_rfc3339(at).unwrap())
        })
        .collect();
    for pair in parsed.windows(2) {
        let ((name, at), (next, then)) = (pair[0], pair[1]);
        assert!(name != next || at + Duration::from_secs(1) == then, "{name}: {at:?}, then {then:?}");
    }
}

async fn three_workers_one_of_them_killed_hold_a_cap(bed: &Bed) {
    const MESSAGES: usize = 60;
    bed.run_with(&["push", "q", "--lines"], &numbers(0..MESSAGES)).await.ended_with(0);
    bed.ok(&["limits", "put", "l", "--queue", "q", "--cap", "3"]).await;
    let mut killed = limits::worker(bed, "killed");
    until("the first holds permits and works", async || {
        let holds = limits::holds(&limits::shown(bed).await, "killed");
        (holds && limits::most_and_ended(bed).1 > 3).then_some(())
    })
    .await;
    let others = [limits::worker(bed, "b"), limits::worker(bed, "c")];
    killed.kill().await.unwrap();
    // Its commands go on, as documented: they are not to be there any more when others have its permits.
    limits::open(bed);
    within(FREED + LATE, "its permits are free", async || {
        (!limits::holds(&limits::shown(bed).await, "killed")).then_some(())
    })
    .await;
    until("everything is done", async || (bed.counts("q").await == [0; 4]).then_some(())).await;
    let (most, done) = limits::most_and_ended(bed);
    assert!((2..=3).contains(&most) && done >= MESSAGES, "{most} at once, {done} done");
    for other in others {
        signal(&other, Signal::TERM);
        ended(other).await.ended_with(0);
    }
    assert!(limits::shown(bed).await["holders"].as_array().unwrap().is_empty());
}

async fn all_hold(url: &str, place: &str) {
    let [tasks, times, caps, values] =
        ["tasks", "times", "caps", "values"].map(|what| Bed::within(url, place, &format!("killed_{what}")));
    tokio::join!(
        a_killed_workers_task_runs_elsewhere_and_it_is_missed(&tasks),
        of_three_schedulers_one_is_killed_and_one_frozen_and_each_time_is_run_once(&times),
        three_workers_one_of_them_killed_hold_a_cap(&caps),
        values::three_workers_one_of_them_killed_hold_the_caps_of_a_kind_and_of_each_value(&values),
    );
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn killed_and_frozen_workers_on_postgres() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Postgres::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    all_hold(url, "schema").await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn killed_and_frozen_workers_on_redis() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Redis::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    all_hold(url, "prefix").await;
}
