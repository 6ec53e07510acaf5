//! Pushes: an acknowledged message is stored, whole and once, for any consumer that comes later.

use std::time::Duration;

use anyqueue::adapter::Action;
use anyqueue::{MessageData, PushOutcome};
use futures_util::future::join_all;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "push.single", [Stored, KeptBeforeConsumers], single).kills(&[Fault::OkBeforeStored]),
    case!(Storage, "push.batch_sizes", [PushResults, BatchSizes], batch_sizes)
        .kills(&[Fault::LosesEleventh, Fault::AnswersReversed]),
    case!(Storage, "push.whole_batch", [PushResults, BatchSizes], whole_batch)
        .kills(&[Fault::LosesEleventh])
        .deadline(LARGE),
    case!(Storage, "push.outlives_pusher", [Stored, Close], outlives_pusher)
        .kills(&[Fault::BufferLostAtClose]),
    case!(Storage, "push.before_any_consumer", [KeptBeforeConsumers], before_any_consumer)
        .kills(&[Fault::BufferLostAtClose]),
    case!(Storage, "push.same_body_twice", [Stored, ContentIntact], same_body_twice)
        .kills(&[Fault::SameBodyDropped]),
    case!(Storage, "push.same_id_twice", [PushErrors, Deduplication], same_id_twice)
        .needs(&[Need::UniqueIds])
        .kills(&[Fault::RepeatStoresTwice, Fault::RepeatRevivesLeased]),
    case!(Storage, "push.same_id_in_one_batch", [PushErrors, Deduplication], same_id_in_one_batch)
        .needs(&[Need::UniqueIds])
        .kills(&[Fault::RepeatStoresTwice]),
    case!(Storage, "push.id_is_free_after_removal", [Deduplication], id_is_free_after_removal)
        .needs(&[Need::UniqueIds])
        .kills(&[Fault::IdNeverFree]),
    case!(Storage, "push.many_pushers", [Stored, PushResults], many_pushers)
        .deadline(LARGE)
        .kills(&[Fault::LosesEleventh]),
    case!(Storage, "push.dropped_future", [Stored, DroppedPull], dropped_future)
        .kills(&[Fault::DroppedPushTears]),
];

/// For cases that push a whole batch of the backend's size, or more.
const LARGE: Duration = Duration::from_mins(1);

/// No larger batch than this is tested, whatever the backend allows.
const MAX_BATCH: usize = 1000;

/// An acknowledged message is there for another client, at once.
async fn single(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let other = c.fresh().await?;
    let got = if c.capabilities().wake_latency <= c.timing().lease {
        other.pull_now(&p, 10).await?
    } else {
        other.take(&p, 1).await?
    };
    c.in_order(Clause::Stored, "the acknowledged message, at once", &sent, &got)?;
    other.remove(&got).await?;
    other.nothing(&p, c.timing().never(), Clause::Stored, "one message, once").await
}

/// Batches of every small size, and of sizes around ten, keep their messages and their order.
async fn batch_sizes(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let largest = c.capabilities().limits.push_batch;
    let mut all = Vec::new();
    for size in [1, 2, 9, 10, 11, 12, 25].into_iter().filter(|size| *size <= largest) {
        let sent = c.client().push(&p, &c.messages(size, |_, message| message)).await?;
        let got = c.client().take_beside(&all, &p, size).await?;
        c.same(Clause::PushResults, &format!("all of a batch of {size}"), &sent, &got)?;
        all.extend(got);
    }
    c.client().remove(&all).await?;
    c.client().nothing(&p, c.timing().slack, Clause::PushResults, "nothing beyond what was pushed").await
}

/// A batch of exactly the declared size is stored whole; one more takes a second call.
async fn whole_batch(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let size = c.capabilities().limits.push_batch.min(MAX_BATCH) + 1;
    let sent = c.client().push(&p, &c.messages(size, |_, message| message)).await?;
    let got = c.client().take(&p, size).await?;
    c.same(Clause::PushResults, &format!("all of a batch of {size}"), &sent, &got)?;
    c.client().remove(&got).await
}

/// The pusher closes right after its push is acknowledged; the messages are there.
async fn outlives_pusher(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let pusher = c.fresh().await?;
    let sent = pusher.push(&p, &c.messages(5, |_, message| message)).await?;
    pusher.close().await?;
    let got = c.client().take(&p, 5).await?;
    c.same(Clause::Stored, "what the closed pusher had pushed", &sent, &got)?;
    c.client().remove(&got).await
}

/// Messages wait for their first consumer, even if nobody ever pulled, and all clients were closed meanwhile.
async fn before_any_consumer(c: &Context) -> CaseResult {
    let p = c.partition("nobody-yet")?;
    let pusher = c.fresh().await?;
    let sent = pusher.push(&p, &c.messages(3, |_, message| message)).await?;
    pusher.close().await?;
    tokio::time::sleep(c.timing().lease).await;
    let consumer = c.fresh().await?;
    let got = consumer.take(&p, 3).await?;
    c.same(Clause::KeptBeforeConsumers, "what was pushed before the first consumer came", &sent, &got)?;
    consumer.remove(&got).await
}

/// Two messages with equal bytes are two messages.
async fn same_body_twice(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = c.message();
    let second = MessageData::new(first.payload());
    let sent = c.client().push(&p, &[first, second]).await?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::ContentIntact, "both messages with equal bytes", &sent, &got)?;
    c.client().remove(&got).await
}

/// Repeating a push returns `Duplicate`, whether the message waits, is held or is dead, and stores nothing.
async fn same_id_twice(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = c.message();
    let sent = c.client().push(&p, std::slice::from_ref(&message)).await?;
    duplicate(c, &p, &message, "while it waits").await?;
    let got = c.client().take(&p, 1).await?;
    duplicate(c, &p, &message, "while it is held").await?;
    c.in_order(Clause::PushErrors, "the one message", &sent, &got)?;
    let dead = Action::Move { to: p.dead_letters(), headers: None };
    c.client().settle_all(&got, &dead).await?;
    duplicate(c, &p, &message, "while it is dead").await?;
    c.client().nothing(&p, c.timing().slack, Clause::PushErrors, "no second copy").await?;
    let got = c.client().take(&p.dead_letters(), 1).await?;
    c.in_order(Clause::PushErrors, "the one message, dead", &sent, &got)?;
    c.client().remove(&got).await
}

async fn duplicate(c: &Context, p: &anyqueue::PartitionId, message: &MessageData, when: &str) -> CaseResult {
    let mut answers = c.client().storage().push(p, std::slice::from_ref(message)).await;
    let answer = c.ok(
        Clause::PushErrors,
        "the repeated push",
        answers.pop().unwrap_or(Ok(PushOutcome::Duplicate(None))),
    )?;
    let ok = matches!(answer, PushOutcome::Duplicate(id) if id.is_none_or(|id| id == message.id()));
    c.check(
        Clause::PushErrors,
        &[message.id()],
        ok,
        format!("Duplicate for a push repeated {when}"),
        format!("{answer:?}"),
    )
}

/// The same message twice in one batch is stored once; its neighbours are not affected.
async fn same_id_in_one_batch(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (a, b) = (c.message(), c.message());
    let answers = c.client().storage().push(&p, &[a.clone(), a.clone(), b.clone()]).await;
    let mut duplicates = 0;
    for (answer, id) in answers.into_iter().zip([a.id(), a.id(), b.id()]) {
        match c.ok(Clause::PushResults, "each item", answer)? {
            PushOutcome::Stored(_) | PushOutcome::Replaced(_) => {}
            PushOutcome::Duplicate(first) => {
                duplicates += 1;
                let ok = first.is_none_or(|first| first == id);
                c.check(Clause::PushErrors, &[id], ok, "the id of the first", format!("{first:?}"))?;
            }
        }
    }
    c.equal(Clause::PushErrors, &[a.id()], "the number of duplicates", &1, &duplicates)?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::PushErrors, "each message once", &[a.id(), b.id()], &got)?;
    c.client().remove(&got).await
}

/// Once removed, a message with the same id can be pushed anew.
async fn id_is_free_after_removal(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = c.message();
    for _ in 0..2 {
        let sent = c.client().push(&p, std::slice::from_ref(&message)).await?;
        let got = c.client().take(&p, 1).await?;
        c.in_order(Clause::Deduplication, "the message", &sent, &got)?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// Concurrent pushers lose nothing and mix nothing up.
async fn many_pushers(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients = [c.client().clone(), c.fresh().await?, c.fresh().await?, c.fresh().await?];
    let each = c.size(3, 12);
    let pushers = (0..16).map(|pusher| {
        let client = clients.get(pusher % clients.len()).unwrap_or(c.client()).clone();
        let p = p.clone();
        async move {
            let mut sent = Vec::new();
            for _ in 0..each {
                sent.extend(client.push(&p, &c.messages(11, |_, message| message)).await?);
            }
            CaseResult::Ok(sent)
        }
    });
    let sent = join_all(pushers).await.into_iter().collect::<CaseResult<Vec<_>>>()?.concat();
    let got = c.client().take(&p, sent.len()).await?;
    c.same(Clause::Stored, "everything that sixteen pushers pushed", &sent, &got)?;
    c.client().remove(&got).await
}

/// A push whose future is dropped stores each message whole or not at all.
async fn dropped_future(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for polls in 0..4 {
        let messages = c.messages(3, |_, message| message);
        let storage = c.client().storage().clone();
        let mut push = storage.push(&p, &messages);
        for _ in 0..polls {
            if futures_util::poll!(&mut push).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let sent = c.client().push(&p, &[c.message()]).await?;
    let mut got = Vec::new();
    while !got.iter().any(|id| sent.contains(id)) {
        let pulled = c.client().pull(&p, 1).await?;
        c.check(
            Clause::Stored,
            &sent,
            !pulled.is_empty(),
            "the acknowledged message to come",
            "nothing more came",
        )?;
        got.extend(ids(&pulled));
        c.client().remove(&pulled).await?;
    }
    Ok(())
}
