//! What is taken and released unseen counts for nothing, and what was answered as settled is told.

use std::time::Duration;

use anyqueue::adapter::{Action, QueueStorage};
use tokio::runtime::Runtime;

use crate::common::{Bed, messages, part, pull, push, settle, take};

/// Longer than what is held ready waits at first.
const TASK: Duration = Duration::from_millis(1300);

#[tokio::test]
async fn slow_tasks_do_not_make_what_is_held_ready_look_delivered() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.builder().prefetch(50).open().await.unwrap());
    push(&queue, &p, &messages(20)).await;
    for _ in 0..5 {
        let got = take(&queue, &p, 1).await;
        assert_eq!(got[0].delivery_count, Some(1));
        tokio::time::sleep(TASK).await;
        settle(&queue, &got, Action::Remove).await;
    }
    queue.close().await.unwrap();
    // Others do not know whether anybody saw them: so there must be few.
    let counts: Vec<_> = take(&bed.open().await, &p, 15).await.iter().map(|got| got.delivery_count).collect();
    assert!(counts.iter().all(|count| count.is_some_and(|count| count <= 4)), "{counts:?}");
    assert!(counts.iter().skip(5).all(|count| count.is_some_and(|count| count <= 3)), "{counts:?}");
}

#[test]
fn what_was_settled_is_told_though_the_program_ends_without_closing() {
    for runtime in [
        || Runtime::new().unwrap(),
        || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
    ] {
        let main = Runtime::new().unwrap();
        let Some(bed) = main.block_on(Bed::shared()) else { return };
        let (p, program) = (part("work"), runtime());
        program.block_on(async {
            let queue = bed.builder().queue_age(Duration::ZERO).open().await.unwrap();
            push(&queue, &p, &messages(1)).await;
            let got = take(&queue, &p, 1).await;
            settle(&queue, &got, Action::Remove).await;
        });
        drop(program);
        main.block_on(async {
            assert!(pull(&bed.open().await, &p, 1, Duration::from_millis(500)).await.is_empty());
        });
    }
}
