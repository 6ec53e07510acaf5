//! A broker that is killed, frozen and cut off under load: nothing acknowledged is lost, no call hangs, and the same handles go on.

use std::time::Duration;

use anyqueue::MessageData;
use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, PushQueueStorage};
use anyqueue_rabbitmq::{QueueType, RabbitMqBuilder, RabbitMqQueue};
use anyqueue_testkit::{Fault, Proxy, RabbitMq};

use crate::common::{Bed, LEASE, becomes, messages, part, push, settle, take, texts};
use crate::load::Load;

const MESSAGES: usize = 50_000;
/// What a busy machine adds. Handles that do not go on by themselves never do.
const LATE: Duration = Duration::from_secs(15);
/// From the broker's return until pushes and pulls go on.
const RECOVERY: Duration = Duration::from_secs(5).saturating_add(LATE);

async fn two(builder: impl Fn() -> RabbitMqBuilder) -> (RabbitMqQueue, RabbitMqQueue) {
    (builder().open().await.unwrap(), builder().open().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_twice_under_load_it_loses_nothing_and_the_same_handles_go_on() {
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let (first, second) = two(|| bed.builder()).await;
    let load = Load::start(&first, &second, &part("p")).await;
    for share in [5, 2] {
        load.reach(MESSAGES / share).await;
        bed.server().kill().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        bed.server().restart().await.unwrap();
        load.go_on(RECOVERY).await;
    }
    load.account(MESSAGES).await;
}

/// The server itself forgets what such a queue holds; a push is answered only when that cannot be any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_in_queues_just_made_is_there_after_a_kill() {
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let (first, second) = two(|| bed.builder()).await;
    let p = part("new");
    let late = MessageData::new("late").with_delay(Duration::from_secs(4));
    let others = async {
        // The first has made the queue, and has no answer yet.
        tokio::time::sleep(Duration::from_millis(500)).await;
        push(&second, &p, &[MessageData::new("second"), late]).await;
    };
    let one = [MessageData::new("first")];
    tokio::join!(push(&first, &p, &one), others);
    bed.server().kill().await.unwrap();
    bed.server().restart().await.unwrap();
    let (third, mut got) = (bed.open().await, Vec::new());
    while got.len() < 3 {
        got.extend(texts(&take(&third, &p, 1).await));
    }
    got.sort();
    assert_eq!(got, ["first", "late", "second"]);
}

/// The node dies at several moments of the wait for the queue to be old: whoever was told that a message is stored finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_is_no_success_if_the_broker_died_before_its_queue_was_old() {
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let queue = bed.open().await;
    push(&queue, &part("warm"), &[MessageData::new("warm")]).await;
    for moment in [100, 800, 1700, 2400] {
        let p = part(&format!("fresh{moment}"));
        let pushing = tokio::spawn({
            let (queue, p) = (queue.clone(), p.clone());
            async move { queue.push(&p, &[MessageData::new("fresh")]).await.remove(0) }
        });
        becomes("the queue is there", || async { bed.try_look(&bed.queue(&p, 0)).await.is_ok() }).await;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        let was_answered = pushing.is_finished();
        bed.server().kill().await.unwrap();
        let answer = pushing.await.unwrap();
        bed.server().restart().await.unwrap();
        assert!(was_answered || answer.is_err(), "after {moment} ms: {answer:?}");
        if answer.is_ok() {
            assert_eq!(texts(&take(&bed.open().await, &p, 1).await), ["fresh"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_for_ten_seconds_under_load_it_loses_nothing_and_no_call_hangs() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let limit = Duration::from_secs(2);
    let (first, second) = two(|| bed.builder().call_timeout(limit).connect_timeout(limit)).await;
    let load = Load::start(&first, &second, &part("p")).await;
    load.reach(MESSAGES / 10).await;
    bed.server().freeze().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    bed.server().thaw().await.unwrap();
    load.go_on(RECOVERY).await;
    load.account(MESSAGES).await;
}

/// The request for a consumer is on its way when its pull gives up, and the broker reads it once it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_a_frozen_broker_was_asked_for_keeps_no_messages() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (limit, p) = (Duration::from_secs(2), part("p"));
    push(&bed.open().await, &p, &messages(300)).await;
    let queue = bed.builder().call_timeout(limit).open().await.unwrap();
    // From now on it knows that there are enough, and asks for a consumer at once.
    let held = take(&queue, &p, 100).await;
    settle(&queue, &held, Action::Remove).await;
    bed.server().freeze().await.unwrap();
    let request = PullRequest::new(100, Duration::from_millis(200), LEASE);
    queue.pull(&p, request).await.unwrap_err();
    bed.server().thaw().await.unwrap();
    becomes("all that are left are ready", || async { bed.ready(&p).await == 200 }).await;
}

async fn cut_off(url: &str, bed: &Bed, messages: usize) {
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = url.replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let limit = Duration::from_secs(2);
    let builder = || RabbitMqQueue::builder(&url).unwrap().call_timeout(limit).connect_timeout(limit);
    let (first, second) = two(builder).await;
    let load = Load::start(&first, &second, &part("p")).await;
    for cut in 1..=20 {
        load.go_on(RECOVERY).await;
        // Now and then the call is done and nobody is told.
        let fault = if cut % 3 == 0 { Fault::DropReplies } else { Fault::Pass };
        proxy.set(fault).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        proxy.reset_all();
        proxy.set(Fault::Pass).await.unwrap();
        // Whoever connected meanwhile has lost the beginning of the server's answers, and would wait for it.
        proxy.reset_all();
    }
    load.account(messages).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_twenty_times_in_the_middle_of_calls_it_loses_nothing() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    cut_off(&bed.url(), &bed, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_twenty_times_while_messages_are_held_ready_it_loses_nothing() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    cut_off(&format!("{}&prefetch=500", bed.url()), &bed, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_with_classic_queues_it_loses_nothing_acknowledged() {
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let (first, second) = two(|| bed.builder().queue_type(QueueType::Classic)).await;
    let load = Load::start(&first, &second, &part("p")).await;
    load.reach(MESSAGES / 5).await;
    bed.server().kill().await.unwrap();
    bed.server().restart().await.unwrap();
    load.go_on(RECOVERY).await;
    load.account(MESSAGES / 2).await;
}
