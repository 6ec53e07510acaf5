//! What a ledger beside a queue is told of tasks that wait, failed, died or are gone: whoever asks elsewhere knows each of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::{MessageData, MessageId, PartitionId, Queue, Task, TaskFilter, TaskState, header};
use anyqueue_worker::{Failure, Partition, Retry, TaskContext, TaskError, TaskResult, Worker, task};
use fastrand::Rng;
use futures_util::TryStreamExt;
use futures_util::future::join;
use tokio::sync::watch;

use crate::grounds::{Ground, PARTITION, with_ledger};
use crate::tapped::{Fact, Facts, Tapped};

const HOUR: Duration = Duration::from_hours(1);
/// The least that RabbitMQ delays by.
const SHORT: Duration = Duration::from_millis(100);
/// Orders in which the ledger is told.
const ORDERS: usize = 8;
/// The tasks, by what becomes of them, and how often they run in all before one is put back.
const NAMES: [&str; 7] = ["later", "retried", "again", "dead", "redriven", "done", "unkept"];
const RUNS: usize = 8;

/// What is known of a task: its state, its attempt, and why it failed last.
type Known = (TaskState, u32, Option<String>);

fn known(state: TaskState, attempt: u32, why: &str) -> Known {
    (state, attempt, (!why.is_empty()).then(|| why.to_owned()))
}

fn said_of(task: Task) -> Known {
    let errors: Vec<Failure> = serde_json::from_str(task.errors.as_deref().unwrap_or("[]")).unwrap();
    let last = errors.last().map(|failure| failure.error.clone());
    let is_due = task.due_at.is_some_and(|due| due > std::time::SystemTime::now());
    assert_eq!(is_due, task.state == TaskState::Scheduled, "{task:?}");
    assert_eq!(task.kind.as_deref(), Some("k"), "{task:?}");
    (task.state, task.attempt, task.reason.map(|reason| reason.to_string()).or(last))
}

fn run(name: &str, task: &TaskContext) -> TaskResult {
    let is_back = task.message().headers().contains_key(header::REDRIVEN_AT);
    match (name, task.attempt()) {
        ("retried", _) => Err(TaskError::after(HOUR, "no route")),
        ("again" | "unkept", 1) => Err(TaskError::after(SHORT, "no route")),
        ("dead" | "redriven", _) if !is_back => Err(TaskError::permanent("bad address")),
        _ => Ok(()),
    }
}

struct Play<'g> {
    ground: &'g Ground,
    facts: Facts,
    tasks: HashMap<&'static str, MessageId>,
}

/// Each event is told by another process than the one that asks. Then other partitions of the ledger are told all of it again, in other
/// orders, some of it doubled, and some left out: what is outdated, and that tasks are gone that have ended.
pub(crate) async fn a_ledger_beside_knows_each_task_in_whatever_order_it_is_told(ground: Ground) {
    use TaskState::{Failed, Queued, Scheduled, Succeeded};
    let mut play = Play { ground: &ground, facts: Facts::default(), tasks: HashMap::new() };
    let reader = ground.open_with_ledger().await;

    play.push().await;
    let mut expected: HashMap<_, _> = NAMES.map(|name| (name, known(Queued, 0, ""))).into();
    expected.insert("later", known(Scheduled, 0, ""));
    play.check(&reader, PARTITION, &expected).await;

    play.work(RUNS).await;
    let died = known(Failed, 1, "failed permanently in attempt 1: bad address");
    expected
        .extend([("retried", known(Scheduled, 1, "no route")), ("again", known(Succeeded, 2, "no route"))]);
    expected.extend([("dead", died.clone()), ("redriven", died)]);
    expected.insert("done", known(Succeeded, 1, ""));
    expected.remove("unkept");
    play.check(&reader, PARTITION, &expected).await;

    play.redrive().await;
    expected.insert("redriven", known(Queued, 0, ""));
    play.check(&reader, PARTITION, &expected).await;

    play.work(1).await;
    expected.insert("redriven", known(Succeeded, 1, ""));
    play.check(&reader, PARTITION, &expected).await;

    for seed in std::iter::repeat_with(|| fastrand::u32(..)).take(ORDERS) {
        let partition = format!("told-{seed}");
        play.tell_again(seed.into(), &partition).await;
        play.check(&reader, &partition, &expected).await;
    }
    reader.close().await.unwrap();
}

impl Play<'_> {
    async fn open_ledger(&self) -> Arc<dyn Storage> {
        anyqueue_backends::open(self.ground.ledger_url().unwrap()).await.unwrap()
    }

    /// A handle whose ledger writes down what it is told.
    async fn open(&self) -> Queue {
        let storage = anyqueue_backends::open(&self.ground.url).await.unwrap();
        let ledger = Tapped::new(self.open_ledger().await, &self.facts);
        with_ledger(storage, Some(Arc::new(ledger))).await
    }

    async fn push(&mut self) {
        let queue = self.open().await;
        for name in NAMES {
            let message = task("k", &name).unwrap();
            let message = match name {
                "later" => message.with_delay(HOUR),
                "unkept" => message.with_header(header::TASK_KEEP_SUCCESS, "0s"),
                _ => message,
            };
            self.tasks.insert(name, message.id());
            queue.push(PARTITION, message).await.unwrap();
        }
        queue.close().await.unwrap(); // which waits until the ledger has been told of everything
    }

    /// Has a worker run tasks so often.
    async fn work(&self, runs: usize) {
        let queue = self.open().await;
        let (count, mut counted) = watch::channel(0);
        let handler = move |name: String, task: TaskContext| {
            count.send_modify(|count| *count += 1);
            async move { run(&name, &task) }
        };
        let partition = Partition::new(PARTITION).retry(Retry::exponential(SHORT).max(5));
        let worker =
            Worker::builder(queue.clone()).partition(partition).handler("k", handler).build().unwrap();
        let all_ran = async { drop(counted.wait_for(|count| *count == runs).await.unwrap()) };
        worker.run_until(all_ran).await.unwrap();
        queue.close().await.unwrap();
    }

    async fn redrive(&self) {
        let queue = self.open().await;
        let chosen = self.tasks["redriven"];
        let dead = queue.dead_letters(PARTITION).unwrap();
        let redriven = dead.redrive().filter(move |message: &MessageData| message.id() == chosen).await;
        assert_eq!(redriven.unwrap().moved, 1);
        queue.close().await.unwrap();
    }

    async fn check(&self, queue: &Queue, partition: &str, expected: &HashMap<&str, Known>) {
        for name in NAMES {
            let task = queue.task(partition, self.tasks[name]).await.unwrap();
            assert_eq!(task.map(said_of).as_ref(), expected.get(name), "{name} in {partition}");
        }
        let listed: Vec<_> = queue.tasks(partition, TaskFilter::new()).unwrap().try_collect().await.unwrap();
        let names: HashMap<_, _> = self.tasks.iter().map(|(name, id)| (*id, *name)).collect();
        let listed: Vec<_> = listed.into_iter().map(|task| (names[&task.id], said_of(task))).collect();
        assert_eq!(listed.len(), expected.len(), "{partition}: {listed:?}");
        for (name, said) in &listed {
            assert_eq!(said, &expected[name], "{name} in the list of {partition}");
        }
        for state in [TaskState::Queued, TaskState::Scheduled, TaskState::Failed, TaskState::Succeeded] {
            let counted =
                queue.count_tasks(partition, &TaskFilter::new().in_state(state), 100).await.unwrap();
            let expected = expected.values().filter(|known| known.0 == state).count();
            assert_eq!(counted.value, expected as u64, "{state:?} in {partition}");
        }
    }

    /// Tells the ledger of everything as if it had been in another partition, by two handles at once.
    async fn tell_again(&self, seed: u64, partition: &str) {
        let mut random = Rng::with_seed(seed);
        let told = self.facts.lock().unwrap().clone();
        let mut greatest: HashMap<_, u64> = HashMap::new();
        for (place, id, fact) in &told {
            let rank = greatest.entry((place.clone(), *id)).or_default();
            *rank = fact.rank().max(*rank);
        }
        let is_greatest = |(place, id, fact): &Fact| greatest[&(place.clone(), *id)] == fact.rank();
        // Whoever stored an end may have been killed before it told that the task is gone.
        let is_end = |(place, _, fact): &Fact| place.name() == PARTITION && fact.is_kept();
        let has_ended = |told_of: &Fact| told.iter().any(|fact| fact.1 == told_of.1 && is_end(fact));
        let is_needed = |fact: &Fact| is_end(fact) || is_greatest(fact) && !has_ended(fact);
        let mut facts: Vec<_> =
            told.iter().filter(|fact| is_needed(fact) || random.bool()).cloned().collect();
        facts.extend(told.iter().filter(|_| random.bool()).cloned());
        random.shuffle(&mut facts);
        for (place, ..) in &mut facts {
            *place = PartitionId::new(&place.name().replacen(PARTITION, partition, 1)).unwrap();
        }
        let (first, second) = facts.split_at(facts.len() / 2);
        let ledgers = (self.open_ledger().await, self.open_ledger().await);
        join(tell(&*ledgers.0, first), tell(&*ledgers.1, second)).await;
        for ledger in [ledgers.0, ledgers.1] {
            ledger.close().await.unwrap();
        }
    }
}

/// Several of one partition at once, where they follow each other.
async fn tell(ledger: &dyn Storage, facts: &[Fact]) {
    let is_new = |call: &[Fact], next: &Fact| call.iter().all(|(_, id, _)| *id != next.1);
    let mut left = facts;
    while let Some(first) = left.first() {
        let more = (1..left.len())
            .take_while(|at| left[*at].0 == first.0 && is_new(&left[..*at], &left[*at]))
            .count();
        let (call, rest) = left.split_at(1 + more);
        let ends: Vec<_> = call.iter().map(|(_, id, end)| (*id, Arc::clone(end))).collect();
        for answer in ledger.ledger().unwrap().record_ended(&first.0, &ends).await {
            answer.unwrap();
        }
        left = rest;
    }
}
