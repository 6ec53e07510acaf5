//! Redrive by the service itself, of which the emulator knows nothing: a layer answers in its place.

use anyqueue::adapter::Action;
use anyqueue::{ErrorKind, MessageData};
use anyqueue_sqs::SqsQueue;

use crate::common::{Bed, part, push, settle, settled, take};
use crate::wire::Trick;

async fn with_dead_letters(bed: &Bed) -> SqsQueue {
    let queue = bed.builder().levels(2).open().await.unwrap();
    for level in 0..2 {
        push(&queue, "p", &[MessageData::new("x").with_priority(level)]).await;
    }
    let held = take(&queue, &part("p"), 2).await;
    let die = Action::Move { to: part("p").dead_letters(), headers: None };
    assert!(settled(&settle(&queue, &held, &die).await));
    queue
}

#[tokio::test]
async fn one_task_for_each_level_puts_dead_letters_back_where_they_came_from() {
    let Some(bed) = Bed::find().await else { return };
    let queue = with_dead_letters(&bed).await;
    for _ in 0..2 {
        bed.wire.play("StartMessageMoveTask", Trick::Answer(r#"{"TaskHandle":"task"}"#));
    }
    assert_eq!(queue.start_redrive(&part("p")).await.unwrap(), 2);
    let begun = bed.wire.seen("StartMessageMoveTask");
    for (level, task) in begun.iter().enumerate() {
        let end = |field: &str| task.body[field].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        assert_eq!(
            (end("SourceArn"), end("DestinationArn")),
            (format!("test_d{level}-p"), format!("test_p{level}-p"))
        );
    }
    assert_eq!(queue.start_redrive(&part("nobody")).await.unwrap(), 0, "there are no dead letters");
}

#[tokio::test]
async fn every_level_has_the_same_level_of_the_dead_letters_as_backstop() {
    let Some(bed) = Bed::find().await else { return };
    with_dead_letters(&bed).await;
    let made = bed.wire.seen("CreateQueue");
    for level in 0..2 {
        let live = made.iter().find(|seen| seen.body["QueueName"] == format!("test_p{level}-p")).unwrap();
        let policy = live.body["Attributes"]["RedrivePolicy"].as_str().unwrap();
        assert!(policy.contains(&format!(":test_d{level}-p\"")), "{policy}");
    }
}

#[tokio::test]
async fn a_server_without_such_tasks_says_so_and_so_does_a_fifo_queue() {
    let Some(bed) = Bed::find().await else { return };
    let queue = with_dead_letters(&bed).await;
    let error = queue.start_redrive(&part("p")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let fifo = bed.builder().fifo(true).open().await.unwrap();
    let error = fifo.start_redrive(&part("p")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    take(&queue, &part("p").dead_letters(), 2).await;
}
