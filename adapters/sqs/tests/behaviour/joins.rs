//! Single entries of many callers in shared requests.

use std::time::Duration;

use anyqueue::ErrorKind;
use anyqueue::adapter::{PullQueueStorage, PullRequest, PushQueueStorage};
use futures_util::future::join_all;

use crate::common::{Bed, LEASE, messages, part, push};
use crate::wire::{Failure, Trick};

/// How many entries each request of this action had.
fn sizes(bed: &Bed, action: &str) -> Vec<usize> {
    bed.wire.seen(action).iter().map(|seen| seen.body["Entries"].as_array().unwrap().len()).collect()
}

#[tokio::test]
async fn those_who_share_a_request_each_get_their_own_answer() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let refused = Failure { code: "AccessDenied", text: "as the test says", sender_fault: true };
    bed.wire.play("SendMessageBatch", Trick::FailEntry(3, refused));
    let (p, all) = (part("p"), messages(12));
    let answers = join_all(all.chunks(1).map(|one| queue.push(&p, one))).await.concat();
    assert_eq!(sizes(&bed, "SendMessageBatch"), [10, 2]);
    for (index, answer) in answers.into_iter().enumerate() {
        let kind = answer.err().map(|error| error.kind());
        assert_eq!(kind, (index == 3).then_some(ErrorKind::AccessDenied), "message {index}");
    }
    let held = queue.pull(&p, PullRequest::new(100, Duration::ZERO, LEASE)).await.unwrap();
    assert_eq!(held.len(), 11);
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_sent() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.builder().linger(Duration::from_secs(1)).open().await.unwrap();
    let (p, all) = (part("p"), messages(2));
    let dropped = tokio::time::timeout(Duration::from_millis(1), queue.push(&p, &all[..1])).await;
    assert!(dropped.is_err(), "it waits for company");
    push(&queue, "p", &all[1..]).await;
    assert_eq!(sizes(&bed, "SendMessageBatch"), [1]);
    let held = queue.pull(&p, PullRequest::new(100, Duration::ZERO, LEASE)).await.unwrap();
    assert_eq!(held.iter().map(|held| held.message.id()).collect::<Vec<_>>(), [all[1].id()]);
}
