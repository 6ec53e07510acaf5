//! What is told of a message's age.

use std::time::{Duration, Instant};

use anyqueue::adapter::Action;

use crate::common::{Bed, messages, part, push, settle, settled, take};
use crate::wire::Trick;

/// The server counts in whole milliseconds, when a message was sent as when it was received.
const GRAINS: Duration = Duration::from_millis(2);
/// Long enough to tell it from what a busy machine does.
const LATE: Duration = Duration::from_millis(700);

#[tokio::test]
async fn an_age_is_not_told_too_low_because_an_answer_was_slow() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let start = Instant::now();
    push(&queue, "p", &messages(1)).await;
    let pushed = Instant::now();
    bed.wire.play("ReceiveMessage", Trick::DelayAnswer(LATE));
    let asked = Instant::now();
    let held = take(&queue, &part("p"), 1).await;
    // So much may the first request have been under way before the server told its time.
    let unknown = asked.elapsed().saturating_sub(LATE);
    assert!(settled(&settle(&queue, &held, &Action::Retry).await));
    let at_least = pushed.elapsed();
    let again = take(&queue, &part("p"), 1).await;
    let at_most = start.elapsed() + unknown;
    let age = again[0].age;
    assert!(bed.wire.is_done() && again[0].delivery_count == Some(2));
    assert!(age + GRAINS >= at_least, "{age:?}, but it was pushed {at_least:?} before");
    assert!(age <= at_most + GRAINS, "{age:?}, but all took {at_most:?}");
}
