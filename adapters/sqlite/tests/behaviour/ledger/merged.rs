//! Several ends of one task.

use super::*;

async fn record(queue: &SqliteQueue, p: &PartitionId, id: MessageId, end: TaskEnd) {
    queue.record_ended(p, &[(id, Arc::new(end))]).await.remove(0).unwrap();
}

fn attempt(attempt: u32) -> TaskEnd {
    succeeded().with_attempt(attempt).with_reason(format!("attempt {attempt}"))
}

#[tokio::test]
async fn a_settlement_replaces_any_end_and_a_record_only_lesser_ones() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let again = message("m");
    let id = again.id();
    let end = async |end: TaskEnd| {
        push(&bed.queue, &p, std::slice::from_ref(&again)).await;
        let held = pull(&bed.queue, &p, 1).await.remove(0);
        assert_eq!(settle_one(&bed.queue, done(&held, end)).await, SettleOutcome::Settled);
    };
    let there = async || {
        let all = all_ended(&bed.queue, &p).await;
        assert_eq!(all.len(), 1, "there is one of each task");
        let found = find(&bed.queue, &p, id).await.unwrap();
        assert_eq!(found.cursor(), all[0].cursor());
        (found.end.attempt, found.end.result.is_some())
    };
    end(attempt(5).with_result("five")).await;
    clock.advance(SECOND);
    end(attempt(2)).await;
    assert_eq!(there().await, (2, false), "the last one that was settled");
    record(&bed.queue, &p, id, attempt(1)).await;
    record(&bed.queue, &p, id, attempt(2).with_result("doubled")).await;
    assert_eq!(there().await, (2, false), "a lesser one, and one of its rank");
    record(&bed.queue, &p, id, attempt(3).with_result("three").with_keep(Some(SECOND))).await;
    assert_eq!(there().await, (3, true));
    clock.advance(SECOND);
    record(&bed.queue, &p, id, attempt(1)).await;
    assert_eq!(there().await, (1, false), "the greater one is told no more");
}

#[tokio::test]
async fn of_ends_that_two_handles_record_at_once_the_greatest_is_left() {
    const TASKS: usize = 20;
    const ENDS: u32 = 12;
    let bed = Bed::new().await;
    let p = part("p");
    let ids: Vec<_> = (0..TASKS).map(|_| MessageId::new()).collect();
    let mut recording = Vec::new();
    for (handle, queue) in [bed.queue.clone(), bed.other().await].into_iter().enumerate() {
        for n in 0..ENDS {
            let (queue, p, ids) = (queue.clone(), p.clone(), ids.clone());
            // Each handle in an order of its own, and each end twice.
            let number = if handle == 0 { n } else { ENDS - 1 - n };
            recording.push(tokio::spawn(async move {
                let ends: Vec<_> = ids.iter().map(|id| (*id, Arc::new(attempt(number)))).collect();
                queue.record_ended(&p, &ends).await
            }));
        }
    }
    for recording in recording {
        assert!(recording.await.unwrap().iter().all(Result::is_ok));
    }
    for found in bed.queue.find_ended(&p, &ids).await {
        assert_eq!(*found.unwrap().unwrap().end, attempt(ENDS - 1));
    }
    assert_eq!(count(&bed.queue, &p).await, TASKS as u64);
}
