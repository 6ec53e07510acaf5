//! Workers with connections of their own share limits of a kind and of each value of a header, in real stores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyqueue::MessageData;
use anyqueue_control::limits::{Limit, Limits, PermitOptions};
use anyqueue_testkit::{Postgres, Redis, provide};
use anyqueue_worker::{Partition, TaskContext, Worker, task};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bed::millis;
use crate::servers::{PATIENCE, open, place};

const EACH: usize = 3;
const HEAVY: usize = 5;
/// Tasks of the customer whose tasks come first and wait for all light ones, of each other one, and how many of those there are.
/// Of theirs every second one is light.
const FULL: usize = 40;
const OTHERS: usize = 50;
const CUSTOMERS: usize = 6;
const LIGHT: usize = OTHERS * CUSTOMERS / 2;

#[derive(Debug, Default)]
struct Seen {
    /// How many run of each value and kind, the most that ever did, and how many have ended.
    of: Mutex<BTreeMap<String, [usize; 3]>>,
    light_ended: watch::Sender<usize>,
}

impl Seen {
    fn begin(&self, of: &str) {
        let mut all = self.of.lock().unwrap();
        let [running, most, _] = all.entry(of.to_owned()).or_default();
        *running += 1;
        *most = (*most).max(*running);
    }

    fn end(&self, of: &str) {
        let mut all = self.of.lock().unwrap();
        let [running, _, ended] = all.get_mut(of).unwrap();
        (*running, *ended) = (*running - 1, *ended + 1);
    }

    fn most(&self, of: &str) -> usize {
        self.of.lock().unwrap().get(of).map_or(0, |of| of[1])
    }

    fn ended(&self, of: &str) -> usize {
        self.of.lock().unwrap().get(of).map_or(0, |of| of[2])
    }

    async fn run(&self, customer: &str, kind: &str) {
        for of in [customer, kind] {
            self.begin(of);
        }
        if customer == "full" {
            // Light ones that wait for it would never end.
            self.light_ended.subscribe().wait_for(|ended| *ended == LIGHT).await.unwrap();
        }
        tokio::time::sleep(millis(fastrand::u64(1..10))).await;
        for of in [customer, kind] {
            self.end(of);
        }
        self.light_ended.send_modify(|ended| *ended += usize::from(kind == "light"));
    }
}

fn others() -> impl Iterator<Item = String> {
    (0..CUSTOMERS).map(|number| format!("c{number}"))
}

fn messages() -> Vec<MessageData> {
    let message = |kind, customer: &str| task(kind, &customer).unwrap().with_header("customer", customer);
    let full = (0..FULL).map(|_| message("heavy", "full"));
    let of = |number: usize| message(["heavy", "light"][number % 2], &format!("c{}", number % CUSTOMERS));
    full.chain((0..OTHERS * CUSTOMERS).map(of)).collect()
}

async fn worker(url: &str, name: &'static str, seen: Arc<Seen>) -> Worker {
    let queue = open(url).await;
    let options = PermitOptions::default().with_every(millis(200));
    let permits = Limits::new(queue.control().unwrap()).permits(options).unwrap();
    let run = move |customer: String, context: TaskContext| {
        let seen = seen.clone();
        async move {
            seen.run(&customer, context.kind()).await;
            Ok(())
        }
    };
    let builder = Worker::builder(queue).partition(Partition::new("mail"));
    let builder = builder.handler("heavy", run.clone()).handler("light", run);
    builder.name(name).slots(10).permits(permits).build().unwrap()
}

async fn each_value_and_a_kind_have_their_caps(url: &str) {
    let queue = open(url).await;
    let limits = Limits::new(queue.control().unwrap());
    limits.put("l", &Limit::each("customer").unwrap().cap(EACH as u64)).await.unwrap();
    limits.put("m", &Limit::kind("heavy").unwrap().cap(HEAVY as u64)).await.unwrap();
    for pushed in queue.push_many("mail", messages()).await.unwrap() {
        pushed.unwrap();
    }
    let seen = Arc::new(Seen::default());
    let (mut workers, mut runs) = (Vec::new(), JoinSet::new());
    for name in ["a", "b", "c"] {
        let worker = worker(url, name, seen.clone()).await;
        workers.push(worker.clone());
        runs.spawn(async move { worker.run().await.unwrap() });
    }
    let since = Instant::now();
    while others().any(|of| seen.ended(&of) < OTHERS) || seen.ended("full") < FULL {
        assert!(since.elapsed() < PATIENCE, "held up: {seen:?}");
        tokio::time::sleep(millis(20)).await;
    }
    workers.iter().for_each(Worker::shutdown);
    for summary in runs.join_all().await {
        assert_eq!((summary.retried, summary.dead, summary.lost), (0, 0, 0), "{summary:?}");
    }
    for of in others().chain(["full".to_owned()]) {
        assert!((1..=EACH).contains(&seen.most(&of)), "{of}: {seen:?}");
    }
    assert!((EACH + 1..=HEAVY).contains(&seen.most("heavy")), "{seen:?}");
    for limit in limits.list().await.unwrap().limits {
        assert!(limit.held == 0 && limit.holders.is_empty(), "nothing leaks: {limit:?}");
    }
    queue.close().await.unwrap();
}

#[tokio::test]
async fn each_value_and_a_kind_have_their_caps_on_postgres() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = place(&server, "schema", "values") else { return };
    each_value_and_a_kind_have_their_caps(&url).await;
}

#[tokio::test]
async fn each_value_and_a_kind_have_their_caps_on_redis() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = place(&server, "prefix", "values") else { return };
    each_value_and_a_kind_have_their_caps(&url).await;
}
