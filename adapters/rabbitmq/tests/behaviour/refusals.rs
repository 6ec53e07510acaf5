//! Users without rights, virtual hosts, and wrong passwords: each is told apart, with what is missing, and no password is shown.

use std::time::Duration;

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage};
use anyqueue::{Error, ErrorKind, MessageData, RetryClass};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::RabbitMq;

use crate::common::{Bed, LEASE, SOON, messages, part, pull, push, settle, take, texts};

const SECRET: &str = "secret-word";

async fn control(bed: &Bed, arguments: &[&str]) {
    RabbitMq::control(bed.server(), arguments).await.unwrap();
}

/// Makes a user without rights. Its name is the test's own, since users stay on a broker.
async fn add_user(bed: &Bed) -> String {
    let app = format!("app-{}", bed.prefix);
    control(bed, &["add_user", &app, SECRET]).await;
    app
}

/// The URL of a user in a virtual host.
fn url(bed: &Bed, user: &str, vhost: &str) -> String {
    let login = bed.url().replace("guest:guest", &format!("{user}:{SECRET}"));
    login.replace("%2f", vhost)
}

fn is_refused(error: &Error, words: &[&str]) {
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error:?}");
    for word in words {
        assert!(error.message().contains(word), "no {word:?} in {error}");
    }
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_right_that_is_missing_is_told() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (p, owner) = (part("p"), bed.open().await);
    push(&owner, &p, &messages(3)).await;
    let app: &str = &add_user(&bed).await;
    let other = "^other:.*";

    // No right in this virtual host at all.
    is_refused(&RabbitMqQueue::open(&url(&bed, app, "%2f")).await.unwrap_err(), &[app, "virtual host"]);
    control(&bed, &["set_permissions", app, other, other, other]).await;
    let queue = RabbitMqQueue::open(&url(&bed, app, "%2f")).await.unwrap();
    is_refused(&queue.init().await.unwrap_err(), &["configure", app]);

    // Pushes need the right to write, once what they go to is there.
    control(&bed, &["set_permissions", app, ".*", other, ".*"]).await;
    let queue = RabbitMqQueue::open(&url(&bed, app, "%2f")).await.unwrap();
    is_refused(&queue.push(&p, &messages(1)).await.remove(0).unwrap_err(), &["write"]);

    // Who may not ask whether a queue for delays is in use could take it for one that nobody has finished.
    control(&bed, &["set_permissions", app, ".*", "^(?!.*:known$).*", ".*"]).await;
    let queue = RabbitMqQueue::open(&url(&bed, app, "%2f")).await.unwrap();
    let late = MessageData::new("late").with_delay(SOON);
    is_refused(&queue.push(&p, &[late]).await.remove(0).unwrap_err(), &["write"]);

    // Pulls need the right to read, and nothing else of queues that are there.
    control(&bed, &["set_permissions", app, ".*", ".*", other]).await;
    let queue = RabbitMqQueue::open(&url(&bed, app, "%2f")).await.unwrap();
    let pulled = queue.pull(&p, PullRequest::new(1, SOON, LEASE)).await;
    is_refused(&pulled.unwrap_err(), &["read"]);

    control(&bed, &["set_permissions", app, ".*", ".*", ".*"]).await;
    let queue = RabbitMqQueue::open(&url(&bed, app, "%2f")).await.unwrap();
    let got = take(&queue, &p, 3).await;
    assert_eq!(texts(&got), ["0", "1", "2"]);
    settle(&queue, &got, Action::Remove).await;
    assert!(!format!("{queue:?}").contains(SECRET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_queue_is_empty_for_who_may_not_make_it_anew() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (p, owner) = (part("p"), bed.builder().queue_age(Duration::ZERO).open().await.unwrap());
    push(&owner, &p, &[MessageData::new("low"), MessageData::new("high").with_priority(5)]).await;
    let app: &str = &add_user(&bed).await;
    let shared = r"^(amq\.gen.*|.*:(known|news|sink))$";
    control(&bed, &["set_permissions", app, shared, ".*", ".*"]).await;
    let queue = RabbitMqQueue::open(&url(&bed, app, "%2f")).await.unwrap();
    bed.remove(&[bed.queue(&p, 5)]).await;
    assert_eq!(texts(&take(&queue, &p, 1).await), ["low"]);
    bed.remove(&[bed.queue(&p, 0)]).await;
    assert!(pull(&queue, &p, 1, Duration::from_millis(100)).await.is_empty());
    owner.push(&p, &messages(1)).await.remove(0).unwrap_err();
    push(&owner, &p, &messages(1)).await;
    assert_eq!(texts(&take(&queue, &p, 1).await), ["0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn virtual_hosts_are_apart_and_what_is_not_there_is_told() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    control(&bed, &["add_vhost", "a b"]).await;
    let app: &str = &add_user(&bed).await;
    control(&bed, &["set_permissions", "-p", "a b", app, ".*", ".*", ".*"]).await;
    let p = part("p");
    let (here, there) = (bed.open().await, RabbitMqQueue::open(&url(&bed, app, "a%20b")).await.unwrap());
    push(&here, &p, &messages(1)).await;
    push(&there, &p, &messages(2)).await;
    assert_eq!(texts(&take(&there, &p, 2).await), ["0", "1"]);
    assert_eq!(texts(&take(&here, &p, 1).await), ["0"]);

    is_refused(&RabbitMqQueue::open(&url(&bed, app, "nowhere")).await.unwrap_err(), &["nowhere"]);
    let nobody = RabbitMqQueue::open(&url(&bed, "nobody", "%2f")).await.unwrap_err();
    is_refused(&nobody, &["user and password"]);
}
