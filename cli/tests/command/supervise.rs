//! `work --processes`: workers that are killed, frozen, recycled and stopped, and their supervisor too.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bed::{Bed, PATIENCE, Ran, ended, numbers, signal, until};
use crate::work::is_gone;

/// Says who runs it, and stays; the second time it does its work.
const ONCE_STUCK: &str = "test -e began && { cat > done; exit; }; echo $$ $PPID > began; exec sleep 1000";

/// The options of most tests: two workers.
const TWO: [&str; 7] = ["work", "q", "--processes", "2", "--name", "w", "--json"];
/// Where a message is to come back soon. Elsewhere leases are as long as usual, so that none ends while a busy machine lets its worker wait.
const SOON: [&str; 2] = ["--lease", "5s"];

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// The command that runs, and its worker.
async fn began(bed: &Bed) -> (Pid, Pid) {
    let line = bed.line_of("began").await;
    let (command, worker) = line.split_once(' ').unwrap();
    (pid(command), pid(worker))
}

/// Its worker can have stopped it already: on a machine so busy that the lease was lost.
fn kill(command: Pid) {
    let _ = kill_process(command, Signal::KILL);
}

async fn is_done(bed: &Bed) {
    let done = async || std::fs::read_to_string(bed.path("done")).ok().filter(|done| done == "x");
    until("its message is done by another", done).await;
}

/// What the supervisor tells last.
fn report(ran: &Ran) -> Value {
    ran.objects().into_iter().find(|object| object["processes"].is_number()).unwrap()
}

/// The numbers of the processes of workers, by their names.
async fn listed(bed: &Bed) -> Vec<(String, u64)> {
    let all = bed.run(&["workers", "list", "--json"]).await.objects();
    all.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), one["pid"].as_u64().unwrap())).collect()
}

async fn a_killed_worker_is_replaced_and_its_message_runs_again(bed: &Bed) {
    bed.ok(&["push", "q", "x"]).await;
    let supervisor = bed.command(&[&TWO[..], &SOON, &["--exec", ONCE_STUCK]].concat()).spawn().unwrap();
    let (command, worker) = began(bed).await;
    kill_process(worker, Signal::KILL).unwrap();
    kill(command); // goes on otherwise, as the help says
    is_done(bed).await;
    until("there are two again", async || (listed(bed).await.len() == 2).then_some(())).await;
    signal(&supervisor, Signal::TERM);
    let ran = ended(supervisor).await.ended_with(0);
    assert_eq!((&report(&ran)["failed"], &report(&ran)["started"]), (&1.into(), &3.into()), "{ran:?}");
    assert!(ran.err.contains("was killed") && ran.err.contains("started again in"), "{ran:?}");
}

async fn a_frozen_worker_is_replaced_once_its_beats_do_not_count(bed: &Bed) {
    bed.ok(&["push", "q", "x"]).await;
    let work = [&TWO[..], &SOON, &["--beat-every", "2s", "--exec", ONCE_STUCK]].concat();
    let supervisor = bed.command(&work).spawn().unwrap();
    let (command, worker) = began(bed).await;
    until("both are registered", async || (listed(bed).await.len() == 2).then_some(())).await;
    kill_process(worker, Signal::STOP).unwrap();
    is_done(bed).await;
    until("it is killed", async || is_gone(&worker.as_raw_nonzero().to_string()).then_some(())).await;
    kill(command);
    signal(&supervisor, Signal::TERM);
    let ran = ended(supervisor).await.ended_with(0);
    assert!(report(&ran)["hung"].as_u64() >= Some(1), "{ran:?}");
    assert!(ran.err.contains("gives no sign of life"), "{ran:?}");
}

async fn both_are_replaced(killed: &Bed, frozen: &Bed) {
    tokio::join!(
        a_killed_worker_is_replaced_and_its_message_runs_again(killed),
        a_frozen_worker_is_replaced_once_its_beats_do_not_count(frozen),
    );
}

#[tokio::test]
async fn killed_and_frozen_workers_are_replaced_on_sqlite() {
    both_are_replaced(&Bed::new(), &Bed::new()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn killed_and_frozen_workers_are_replaced_on_postgres() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Postgres::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    let [killed, frozen] =
        ["killed", "frozen"].map(|what| Bed::within(url, "schema", &format!("supervised_{what}")));
    both_are_replaced(&killed, &frozen).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn killed_and_frozen_workers_are_replaced_on_redis() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Redis::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    let [killed, frozen] =
        ["killed", "frozen"].map(|what| Bed::within(url, "prefix", &format!("supervised_{what}")));
    both_are_replaced(&killed, &frozen).await;
}

#[tokio::test]
async fn workers_are_replaced_after_so_many_messages_and_each_runs_once() {
    let bed = Bed::new();
    bed.run_with(&["push", "q", "--lines"], &numbers(0..20)).await.ended_with(0);
    let work = [&TWO[..], &["--slots", "1", "--max-tasks", "4", "--exec", "echo $(cat) >> done"]].concat();
    let supervisor = bed.command(&work).spawn().unwrap();
    until("the queue is empty", async || (bed.counts("q").await == [0; 4]).then_some(())).await;
    signal(&supervisor, Signal::TERM);
    let ran = ended(supervisor).await.ended_with(0);
    let done = std::fs::read_to_string(bed.path("done")).unwrap();
    let mut done: Vec<usize> = done.lines().map(|line| line.parse().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..20).collect::<Vec<_>>(), "each once: {ran:?}");
    let report = report(&ran);
    assert!(report["recycled"].as_u64() >= Some(3) && report["failed"] == 0, "{ran:?}");
    for worker in ran.objects().iter().filter(|object| object["released"].is_number()) {
        assert!(worker["processed"].as_u64() <= Some(4), "{worker}");
    }
}

#[tokio::test]
async fn a_worker_alone_ends_with_a_code_of_its_own_at_its_limits() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "a", "b", "c"]).await;
    let work = ["work", "q", "--slots", "1", "--exec", "cat >> done"];
    bed.run(&[&work[..], &["--max-tasks", "1"]].concat()).await.ended_with(6);
    assert_eq!(std::fs::read_to_string(bed.path("done")).unwrap().len(), 1);
    if cfg!(target_os = "linux") {
        bed.run(&[&work[..], &["--max-memory", "1K"]].concat()).await.ended_with(6);
    }
    bed.run(&[&work[..], &["--max-tasks", "100", "--once"]].concat()).await.ended_with(0);
    assert_eq!(bed.counts("q").await, [0; 4]);
    for wrong in [["--max-tasks", "0"], ["--max-memory", "much"], ["--processes", "0"]] {
        bed.run(&[&work[..], &wrong].concat()).await.ended_with(2);
    }
}

#[tokio::test]
async fn sigterm_lets_the_messages_of_all_finish() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "a", "b", "c"]).await;
    let exec = "m=$(cat); echo $PPID > began-$m; while [ -d $PWD ] && [ ! -e go ]; do sleep 0.05; done; echo $m >> done";
    let work = [&TWO[..], &["--slots", "1", "--exec", exec]].concat();
    let supervisor = bed.command(&work).spawn().unwrap();
    let begun = async || {
        let workers = ["a", "b", "c"].map(|name| std::fs::read_to_string(bed.path(&format!("began-{name}"))));
        let workers: Vec<_> = workers.into_iter().flatten().filter(|text| text.ends_with('\n')).collect();
        (workers.len() == 2).then_some(workers)
    };
    let workers = until("each runs one", begun).await;
    assert_ne!(workers[0], workers[1], "they are two processes");
    signal(&supervisor, Signal::TERM);
    until("they take nothing more", async || {
        let all = bed.run(&["workers", "list", "--json"]).await.objects();
        (all.len() == 2 && all.iter().all(|worker| worker["state"] == "draining")).then_some(())
    })
    .await;
    std::fs::write(bed.path("go"), "").unwrap();
    let ran = ended(supervisor).await.ended_with(0);
    assert_eq!(std::fs::read_to_string(bed.path("done")).unwrap().lines().count(), 2, "{ran:?}");
    assert_eq!(bed.counts("q").await, [1, 0, 0, 0]);
    assert_eq!(report(&ran)["killed"], 0, "{ran:?}");
    assert!(workers.iter().all(|worker| is_gone(worker.trim())));
}

#[tokio::test]
async fn when_the_supervisor_is_killed_its_workers_end_in_order() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let exec = "echo $$ $PPID > began; while [ -d $PWD ] && [ ! -e go ]; do sleep 0.05; done; cat > done";
    let mut supervisor = bed.command(&[&TWO[..], &["--exec", exec]].concat()).spawn().unwrap();
    began(&bed).await;
    let workers =
        until("both are registered", async || Some(listed(&bed).await).filter(|all| all.len() == 2)).await;
    supervisor.kill().await.unwrap();
    std::fs::write(bed.path("go"), "").unwrap();
    is_done(&bed).await;
    for (name, pid) in workers {
        until(&format!("{name} is gone"), async || is_gone(&pid.to_string()).then_some(())).await;
    }
    assert_eq!(bed.counts("q").await, [0; 4]);
    bed.run(&["workers", "list"]).await.ended_with(4);
}

#[tokio::test]
async fn a_worker_that_is_recycled_is_replaced_and_one_that_is_stopped_is_not() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let work = [&TWO[..], &["--beat-every", "3s", "--exec", "true"]].concat();
    let supervisor = bed.command(&work).spawn().unwrap();
    let both = || async { Some(listed(&bed).await).filter(|all| all.len() == 2) };
    let before = until("both are registered", async || both().await).await;
    assert_eq!((before[0].0.as_str(), before[1].0.as_str()), ("w-1", "w-2"));
    bed.ok(&["workers", "recycle", "w-1"]).await;
    let is_new = async || both().await.filter(|all| all[0].1 != before[0].1);
    let after = until("it is another process", is_new).await;
    assert_eq!(after[1], before[1], "the other one is left alone");
    bed.ok(&["workers", "stop", "w-1"]).await;
    bed.ok(&["workers", "stop", "w-2"]).await;
    let ran = tokio::time::timeout(PATIENCE, ended(supervisor)).await.unwrap().ended_with(0);
    let report = report(&ran);
    assert_eq!(
        (&report["started"], &report["recycled"], &report["failed"]),
        (&3.into(), &1.into(), &0.into())
    );
}

#[tokio::test]
async fn workers_that_empty_their_queues_once_are_done() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "a", "b"]).await;
    let ran = bed.ok(&[&TWO[..], &["--once", "--exec", "true"]].concat()).await;
    assert_eq!((&report(&ran)["started"], &report(&ran)["failed"]), (&2.into(), &0.into()), "{ran:?}");
    assert_eq!(bed.counts("q").await, [0; 4]);
}

#[tokio::test]
async fn a_command_does_not_take_itself_for_a_worker() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let exec = "echo ${ANYQUEUE_SUPERVISED_AS-none} > seen";
    bed.ok(&[&TWO[..], &["--once", "--exec", exec]].concat()).await;
    assert_eq!(bed.line_of("seen").await, "none\n");
}
