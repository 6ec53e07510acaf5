//! Pulls that wait: what wakes them, how many, and when.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use anyqueue::adapter::{
    Action, PauseQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage, RawDelivery,
    Settlement,
};
use anyqueue::{ErrorKind, ExtendOutcome, MessageData, PartitionId, Result};
use anyqueue_memory::MemoryQueue;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, LEASE, NANO, kind, payloads, secs};

const WAIT: Duration = Duration::from_secs(1000);

/// A pull that the test polls by hand, and how often it was woken.
struct Waiting<'a> {
    pull: Pin<Box<dyn Future<Output = Result<Vec<RawDelivery>>> + Send + 'a>>,
    wakes: Arc<Wakes>,
    seen: usize,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<'a> Waiting<'a> {
    fn new(t: &'a Fixture, request: PullRequest) -> Self {
        let mut waiting = Self { pull: t.queue.pull(&t.jobs, request), wakes: Arc::default(), seen: 0 };
        assert!(waiting.poll().is_none(), "it waits");
        waiting
    }

    fn poll(&mut self) -> Option<Vec<RawDelivery>> {
        self.seen = self.wakes.0.load(Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.wakes));
        match self.pull.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(pulled) => Some(pulled.unwrap()),
            Poll::Pending => None,
        }
    }

    fn is_woken(&self) -> bool {
        self.wakes.0.load(Ordering::SeqCst) > self.seen
    }
}

fn wait(max: usize) -> PullRequest {
    PullRequest::new(max, WAIT, LEASE)
}

fn waiters(t: &Fixture, n: usize) -> Vec<Waiting<'_>> {
    (0..n).map(|_| Waiting::new(t, wait(1))).collect()
}

/// Polls whoever was woken until nobody is. Returns how many polls that took, and what was delivered.
fn settle_down(waiters: &mut Vec<Waiting<'_>>) -> (usize, Vec<RawDelivery>) {
    let (mut polls, mut delivered) = (0, Vec::new());
    while let Some(woken) = waiters.iter().position(Waiting::is_woken) {
        polls += 1;
        if let Some(deliveries) = waiters[woken].poll() {
            delivered.extend(deliveries);
            drop(waiters.remove(woken));
        }
    }
    (polls, delivered)
}

#[tokio::test]
async fn one_push_wakes_one_of_many_and_n_pushes_wake_n_first_come_first_served() {
    let t = Fixture::new();
    let mut waiters = waiters(&t, 50);
    t.push_all(&["a"]).await;
    let woken: Vec<_> = waiters.iter().map(Waiting::is_woken).collect();
    assert_eq!(woken.iter().filter(|woken| **woken).count(), 1);
    assert!(woken[0]);
    let (_, delivered) = settle_down(&mut waiters);
    assert_eq!((payloads(&delivered), waiters.len()), (vec!["a".to_owned()], 49));

    t.queue.push(&t.jobs, &(0..49).map(|n| MessageData::new(n.to_string())).collect::<Vec<_>>()).await;
    assert!(waiters.iter().all(Waiting::is_woken));
    let (_, delivered) = settle_down(&mut waiters);
    assert_eq!((delivered.len(), waiters.len()), (49, 0));
}

#[tokio::test]
async fn waking_costs_a_few_polls_a_message_however_many_wait() {
    let t = Fixture::new();
    let mut waiters = waiters(&t, 200);
    let mut polls = 0;
    for _ in 0..100 {
        t.push_all(&["a"]).await;
        polls += settle_down(&mut waiters).0;
    }
    assert_eq!(waiters.len(), 100);
    // One poll to deliver each, and now and then one to hand the keeping of time to another.
    assert!((100..=110).contains(&polls), "{polls} polls for 100 messages");
}

#[tokio::test]
async fn the_call_of_a_dropped_waiter_goes_on_to_another() {
    let t = Fixture::new();
    let mut waiters = waiters(&t, 3);
    t.push_all(&["a"]).await;
    assert!(waiters[0].is_woken());
    drop(waiters.remove(0));
    assert!(waiters[0].is_woken());
    drop(waiters.remove(0));
    assert_eq!(payloads(&settle_down(&mut waiters).1), ["a"]);
}

#[tokio::test]
async fn a_dropped_waiter_eats_no_later_push() {
    let t = Fixture::new();
    for _ in 0..100 {
        drop(Waiting::new(&t, wait(10)));
        t.push_all(&["a"]).await;
        let held = t.pull_one().await;
        assert_eq!(held.delivery_count, Some(1));
        t.remove(&held).await;
    }
}

#[tokio::test]
async fn a_waiter_that_was_forestalled_waits_on_and_is_called_again() {
    let t = Fixture::new();
    let mut waiters = waiters(&t, 1);
    t.push_all(&["a"]).await;
    let quick = t.pull_one().await;
    assert_eq!(settle_down(&mut waiters).1.len(), 0);
    t.release(&quick).await;
    assert_eq!(payloads(&settle_down(&mut waiters).1), ["a"]);
}

#[tokio::test]
async fn a_release_a_move_a_removal_in_the_group_and_a_resume_wake() {
    let t = Fixture::new();
    t.push(MessageData::new("head").with_group("g")).await;
    t.push(MessageData::new("next").with_group("g")).await;
    let held = t.pull_one().await;

    let mut released = waiters(&t, 1);
    t.release(&held).await;
    let held = settle_down(&mut released).1.remove(0);
    let mut freed = waiters(&t, 1);
    t.remove(&held).await;
    let held = settle_down(&mut freed).1.remove(0);
    assert_eq!(held.message.payload(), b"next");

    let mut moved = waiters(&t, 1);
    t.move_to(&held, &t.jobs).await;
    let held = settle_down(&mut moved).1.remove(0);

    t.queue.set_paused(&t.jobs, true).await.unwrap();
    t.release(&held).await;
    let mut resumed = waiters(&t, 2);
    t.push_all(&["pushed in the pause"]).await;
    assert_eq!(settle_down(&mut resumed).0, 0, "nobody is woken while it is paused");
    t.queue.set_paused(&t.jobs, false).await.unwrap();
    assert_eq!(settle_down(&mut resumed).1.len(), 2);
}

#[tokio::test]
async fn a_pause_begun_during_the_wait_keeps_it_empty_and_a_resume_wakes_at_what_matured_meanwhile() {
    let t = Fixture::new();
    t.push(MessageData::new("a").with_delay(secs(5))).await;
    let mut waiters = waiters(&t, 1);
    t.queue.set_paused(&t.jobs, true).await.unwrap();
    t.time.advance(secs(5));
    assert_eq!(settle_down(&mut waiters).1.len(), 0);
    t.queue.set_paused(&t.jobs, false).await.unwrap();
    assert_eq!(settle_down(&mut waiters).1.len(), 1);
}

#[tokio::test]
async fn a_waiter_wakes_at_the_moment_of_maturity_and_of_the_lease_end() {
    let t = Fixture::new();
    t.push(MessageData::new("a").with_delay(secs(5))).await;
    let mut waiters = waiters(&t, 2);
    t.time.advance(secs(5) - NANO);
    assert_eq!(settle_down(&mut waiters).1.len(), 0);
    t.time.advance(NANO);
    let (_, delivered) = settle_down(&mut waiters);
    assert_eq!((payloads(&delivered), waiters.len()), (vec!["a".to_owned()], 1));
    t.time.advance(LEASE - NANO);
    assert_eq!(settle_down(&mut waiters).1.len(), 0);
    t.time.advance(NANO);
    assert_eq!(settle_down(&mut waiters).1[0].delivery_count, Some(2));
}

#[tokio::test]
async fn an_alarm_that_moves_forward_is_heard() {
    let t = Fixture::new();
    t.push_all(&["held"]).await;
    let held = t.pull_one().await;
    let mut waiters = waiters(&t, 3);
    t.push(MessageData::new("soon").with_delay(secs(2))).await;
    settle_down(&mut waiters);
    assert_eq!(t.extend(&held, secs(1)).await, ExtendOutcome::Extended);
    settle_down(&mut waiters);
    t.time.advance(secs(1));
    assert_eq!(payloads(&settle_down(&mut waiters).1), ["held"]);
    t.time.advance(secs(1));
    assert_eq!(payloads(&settle_down(&mut waiters).1), ["soon"]);
}

#[tokio::test]
async fn the_alarm_is_heard_when_the_waiter_that_kept_it_is_gone() {
    let t = Fixture::new();
    t.push(MessageData::new("a").with_delay(secs(5))).await;
    let mut waiters = waiters(&t, 5);
    for _ in 0..4 {
        drop(waiters.remove(0));
        settle_down(&mut waiters);
    }
    t.time.advance(secs(5));
    assert_eq!(payloads(&settle_down(&mut waiters).1), ["a"]);
}

#[tokio::test]
async fn an_alarm_wakes_as_many_as_there_are_messages() {
    let t = Fixture::new();
    for _ in 0..3 {
        t.push(MessageData::new("a").with_delay(secs(5))).await;
    }
    let mut waiters = waiters(&t, 100);
    t.time.advance(secs(5));
    // On a manual clock every sleeper sees each turn of the clock, and sleeps on: only these polls find anything.
    assert_eq!(settle_down(&mut waiters).1.len(), 3);
    assert_eq!(waiters.len(), 97);
}

#[tokio::test]
async fn an_empty_pull_ends_at_its_deadline_and_not_before() {
    let t = Fixture::new();
    let mut waiters = waiters(&t, 2);
    t.time.advance(WAIT - NANO);
    settle_down(&mut waiters);
    assert_eq!(waiters.len(), 2);
    t.time.advance(NANO);
    assert!(settle_down(&mut waiters).1.is_empty());
    assert!(waiters.is_empty());
}

#[tokio::test]
async fn stop_ends_the_wait_with_nothing_and_passes_a_call_on() {
    let t = Fixture::new();
    let stop = CancellationToken::new();
    let mut stopped = Waiting::new(&t, wait(1).with_stop(stop.clone()));
    let mut other = waiters(&t, 1);
    stop.cancel();
    assert_eq!(stopped.poll().map(|deliveries| deliveries.len()), Some(0));
    t.push_all(&["a"]).await;
    assert_eq!(payloads(&settle_down(&mut other).1), ["a"]);
    t.push_all(&["b"]).await;
    let ready = t.queue.pull(&t.jobs, wait(1).with_stop(stop)).await.unwrap();
    assert_eq!(payloads(&ready), ["b"], "what is ready needs no wait");
}

#[tokio::test]
async fn close_ends_the_waits_of_its_own_client_only() {
    let t = Fixture::new();
    let other = t.queue.client();
    let mut of_other = Box::pin(other.pull(&t.jobs, wait(1)));
    assert!(futures_util::poll!(&mut of_other).is_pending());
    let mut own = Box::pin(t.queue.pull(&t.jobs, wait(1)));
    assert!(futures_util::poll!(&mut own).is_pending());
    t.queue.close().await.unwrap();
    assert_eq!(kind(own.await), ErrorKind::Closed);
    assert!(futures_util::poll!(&mut of_other).is_pending());
    other.push(&t.jobs, &[MessageData::new("a")]).await;
    assert_eq!(of_other.await.unwrap().len(), 1);
}

/// Real threads and real time: every message is delivered and removed exactly once, whoever waits, drops and pushes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_among_many_tasks() {
    const MESSAGES: usize = 20_000;
    let queue = Arc::new(MemoryQueue::new());
    let jobs = PartitionId::new("jobs").unwrap();
    let removed = Arc::new(AtomicUsize::new(0));
    let done = CancellationToken::new();
    let mut tasks = Vec::new();
    for consumer in 0..32 {
        let (queue, jobs, removed, done) =
            (Arc::clone(&queue), jobs.clone(), Arc::clone(&removed), done.clone());
        tasks.push(tokio::spawn(async move {
            while !done.is_cancelled() {
                // Half of them give up again and again, at any moment.
                let patience = if consumer % 2 == 0 { secs(60) } else { Duration::from_micros(200) };
                let request = PullRequest::new(1 + consumer % 3, secs(60), secs(60)).with_stop(done.clone());
                let Ok(pulled) = tokio::time::timeout(patience, queue.pull(&jobs, request)).await else {
                    continue;
                };
                let settlements: Vec<_> = pulled
                    .unwrap()
                    .into_iter()
                    .map(|delivery| Settlement::new(delivery.lease, Action::Remove))
                    .collect();
                queue.settle(&settlements).await;
                if removed.fetch_add(settlements.len(), Ordering::SeqCst) + settlements.len() == MESSAGES {
                    done.cancel();
                }
            }
        }));
    }
    for producer in 0..4 {
        let (queue, jobs) = (Arc::clone(&queue), jobs.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..MESSAGES / 4 {
                queue.push(&jobs, &[MessageData::new("x")]).await.remove(0).unwrap();
                if producer % 2 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }));
    }
    let all = futures_util::future::try_join_all(tasks);
    tokio::time::timeout(secs(60), all).await.expect("a wake-up was lost").unwrap();
    assert_eq!(removed.load(Ordering::SeqCst), MESSAGES);
}

/// On the system's clock a wait ends at its time, not later than the declared slack beyond what a busy machine adds.
#[tokio::test]
async fn waits_work_on_the_systems_clock() {
    let queue = MemoryQueue::new();
    let jobs = PartitionId::new("jobs").unwrap();
    let delay = Duration::from_millis(20);
    queue.push(&jobs, &[MessageData::new("a").with_delay(delay)]).await;
    let pulled = queue.pull(&jobs, PullRequest::new(1, secs(60), secs(1))).await.unwrap();
    assert!(pulled[0].age >= delay);
    let empty = queue.pull(&jobs, PullRequest::new(1, delay, secs(1))).await.unwrap();
    assert!(empty.is_empty());
}
