//! Pushes through the queue: any number, in chunks and joined calls, each message with its own outcome.

use std::collections::HashMap;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::{Error, ErrorKind, MessageData, MessageId, PartitionId, PushOutcome, Queue, Result};
use futures_util::future::join_all;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Context, handler_ids, polled};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_push.batch_sizes", [PushResults, BatchSizes], batch_sizes)
        .kills(&[Fault::LosesEleventh])
        .deadline(LARGE),
    case!(Queue, "queue_push.chunks", [PushResults, BatchSizes], chunks).kills(&[Fault::AnswersReversed]),
    case!(Queue, "queue_push.chunks_by_bytes", [BatchSizes, Limits], chunks_by_bytes)
        .kills(&[Fault::AnswersReversed]),
    case!(Queue, "queue_push.one_bad_item", [PushResults], one_bad_item).kills(&[Fault::AnswersReversed]),
    case!(Queue, "queue_push.none", [BatchSizes], none).kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_push.own_outcomes", [PushResults], own_outcomes).kills(&[Fault::RepeatStoresTwice]),
    case!(Queue, "queue_push.in_order", [PushResults, Order], in_order).kills(&[Fault::LargeMaxEmpty]),
    case!(Queue, "queue_push.dropped", [Stored, DroppedPull], dropped).kills(&[Fault::DroppedPushTears]),
];

const LARGE: Duration = Duration::from_mins(1);

/// No larger batch than this is tested, whatever the backend allows.
const MAX_BATCH: usize = 1000;

/// Steps of a future before it is dropped, at most.
const STEPS: usize = 20;

/// One message, and around one and ten times the backend's own batch size: all are stored, in order, and each
/// is answered.
async fn batch_sizes(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let batch = c.capabilities().limits.push_batch.min(MAX_BATCH);
    for size in [1, batch.saturating_sub(1), batch, batch + 1, 10 * batch + 1] {
        round_trip(c, &queue, &p, size).await?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::PushResults, "nothing beyond what was pushed").await
}

/// The same if a call takes three messages: chunks of three, none lost at their borders.
async fn chunks(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |declared| declared.limits.push_batch = 3);
    let queue = over(c, &storage)?;
    for size in [1, 2, 3, 4, 31] {
        let calls = storage.pushes();
        round_trip(c, &queue, &p, size).await?;
        c.equal(
            Clause::BatchSizes,
            &[],
            "the number of push calls",
            &size.div_ceil(3),
            &(storage.pushes() - calls),
        )?;
    }
    c.equal(Clause::Limits, &[], "the largest push call", &3, &storage.largest_push())
}

/// Chunks are also split by their size in bytes.
async fn chunks_by_bytes(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let size = c.client().storage().encoded_len(&c.message());
    let storage =
        Altered::new(c.client().storage(), |declared| declared.limits.push_batch_bytes = 5 * size / 2);
    round_trip(c, &over(c, &storage)?, &p, 7).await?;
    c.equal(
        Clause::Limits,
        &[],
        "the messages in a call that takes two and a half",
        &2,
        &storage.largest_push(),
    )
}

fn over(c: &Context, storage: &std::sync::Arc<Altered>) -> CaseResult<Queue> {
    let storage: std::sync::Arc<dyn Storage> = storage.clone();
    c.ok(Clause::Unsupported, "a queue", Queue::builder(storage).defaults(c.long_options()).build())
}

async fn round_trip(c: &Context, queue: &Queue, p: &PartitionId, size: usize) -> CaseResult {
    let sent = c.store(queue, p, c.messages(size, |_, task| task)).await?;
    let mut held = c.hold(queue, p, size).await?;
    c.same_order(Clause::PushResults, &format!("all of {size}"), &sent, &handler_ids(&held))?;
    c.processed(queue, &mut held).await
}

/// Errors of some messages are returned at their positions, and do not affect others.
async fn one_bad_item(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let good = c.client().storage().encoded_len(&c.message());
    let storage = Altered::new(c.client().storage(), |declared| {
        declared.limits.message_bytes = good + 100;
        declared.limits.push_batch = 3;
    });
    let queue = over(c, &storage)?;
    let broken: HashMap<usize, ErrorKind> = HashMap::from([
        (0, ErrorKind::TooLarge),
        (4, ErrorKind::InvalidInput),
        (5, ErrorKind::TooLarge),
        (11, ErrorKind::InvalidInput),
    ]);
    let messages = c.messages(12, |index, task| match broken.get(&index) {
        Some(ErrorKind::TooLarge) => MessageData::with_id(task.id(), vec![b'x'; 2000]),
        Some(_) => task.with_header("anyqueue-mine", "reserved"),
        None => task,
    });
    let ids: Vec<_> = messages.iter().map(MessageData::id).collect();
    let answers =
        c.ok(Clause::PushResults, "push_many with bad items", queue.push_many(&p, messages).await)?;
    c.equal(Clause::PushResults, &[], "the number of answers", &ids.len(), &answers.len())?;
    let mut sent = Vec::new();
    for (index, (id, answer)) in ids.into_iter().zip(&answers).enumerate() {
        if let Some(kind) = broken.get(&index) {
            c.error(Clause::PushResults, &format!("item {index}"), *kind, answer)?;
        } else {
            c.stored(&[id], std::slice::from_ref(answer))?;
            sent.push(id);
        }
    }
    let mut held = c.hold(&queue, &p, sent.len()).await?;
    c.same_order(Clause::PushResults, "the good ones, and they alone", &sent, &handler_ids(&held))?;
    c.processed(&queue, &mut held).await?;
    c.client().nothing(&p, c.timing().slack, Clause::PushResults, "nothing of the bad ones").await
}

/// Pushing none is fine and stores nothing.
async fn none(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let answers = c.ok(Clause::BatchSizes, "a push of none", queue.push_many(&p, Vec::new()).await)?;
    c.equal(Clause::BatchSizes, &[], "the number of answers", &0, &answers.len())?;
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::BatchSizes, "the one message that was pushed then", &sent, &got)
}

/// Many tasks that push one message at a time share calls, and still each gets the answer to its own.
async fn own_outcomes(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let unique = c.capabilities().unique_ids;
    let known = c.message();
    c.store(&queue, &p, vec![known.clone()]).await?;
    let pushers = (0..64).map(|pusher| {
        let (queue, p, known) = (queue.clone(), p.clone(), known.clone());
        let messages = c.messages(4, |round, task| match (pusher % 4, round) {
            (0, 1) => task.with_header("anyqueue-mine", "reserved"),
            (1, 2) if unique => known.clone(),
            _ => task,
        });
        tokio::spawn(async move {
            let mut answers = Vec::new();
            for message in messages {
                answers.push((message.clone(), queue.push(&p, message).await));
            }
            answers
        })
    });
    let mut sent = vec![known.id()];
    for pushed in join_all(pushers).await {
        for (message, answer) in
            c.ok(Clause::PushResults, "a pusher", pushed.map_err(|error| Error::invalid(error.to_string())))?
        {
            sent.extend(own_outcome(c, known.id(), &message, &answer)?);
        }
    }
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::PushResults, "what was answered as stored, and that alone", &sent, &got)
}

fn own_outcome(
    c: &Context,
    known: MessageId,
    message: &MessageData,
    answer: &Result<PushOutcome>,
) -> CaseResult<Option<MessageId>> {
    let id = message.id();
    if !message.headers().is_empty() {
        c.error(Clause::PushResults, "the push with a reserved header", ErrorKind::InvalidInput, answer)?;
        return Ok(None);
    }
    if id == known {
        let ok = matches!(answer, Ok(PushOutcome::Duplicate(_)));
        c.check(Clause::PushResults, &[id], ok, "Duplicate for the repeated push", format!("{answer:?}"))?;
        return Ok(None);
    }
    c.stored(&[id], std::slice::from_ref(answer))?;
    Ok(Some(id))
}

/// One task's pushes stay in its order, even if they share calls with those of others.
async fn in_order(c: &Context) -> CaseResult {
    let queue = c.queue()?;
    let pushers = ["one", "two", "three"].map(|name| {
        let (queue, messages) = (queue.clone(), c.messages(20, |_, task| task));
        async move {
            let p = c.partition(name)?;
            for message in &messages {
                let answer = queue.push(&p, message.clone()).await;
                c.stored(&[message.id()], &[answer])?;
            }
            CaseResult::Ok((p, messages.iter().map(MessageData::id).collect::<Vec<_>>()))
        }
    });
    for pushed in join_all(pushers).await {
        let (p, sent) = pushed?;
        let mut held = c.hold(&queue, &p, sent.len()).await?;
        c.same_order(Clause::PushResults, "one task's pushes", &sent, &handler_ids(&held))?;
        c.processed(&queue, &mut held).await?;
    }
    Ok(())
}

/// A push dropped at any moment leaves its message stored whole, once, or not at all.
async fn dropped(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let (mut acknowledged, mut attempted, mut untouched) = (Vec::new(), Vec::new(), Vec::new());
    for steps in 0..STEPS {
        let (one, many) = (c.message(), c.messages(3, |_, task| task));
        let ids: Vec<_> = std::iter::once(one.id()).chain(many.iter().map(MessageData::id)).collect();
        let alone = polled(steps, queue.push(&p, one)).await;
        let together = polled(steps, queue.push_many(&p, many)).await;
        if steps == 0 {
            untouched.extend(ids.iter().copied());
        }
        let answers = alone.into_iter().chain(together.and_then(Result::ok).into_iter().flatten());
        acknowledged.extend(answers.filter_map(|answer| match answer {
            Ok(PushOutcome::Stored(id)) => Some(id),
            _ => None,
        }));
        attempted.extend(ids);
    }
    acknowledged.extend(c.store(&queue, &p, vec![c.message()]).await?);
    let got = c.drain(&queue, &p, c.timing().soon).await?;
    for id in got.iter().chain(&acknowledged) {
        let (seen, due) = (got.iter().filter(|other| *other == id).count(), acknowledged.contains(id));
        let ok = seen == 1 && (due || attempted.contains(id)) && !untouched.contains(id);
        let expected =
            "each message at most once, the acknowledged exactly once, and none that was never polled";
        c.check(Clause::Stored, &[*id], ok, expected, format!("{seen} of {}", c.label(*id)))?;
    }
    Ok(())
}
