//! Several callers at once that wait for room in one queue, or do the same through it: each gets its turn,
//! and no room is lost.
//!
//! These cases run a second time on a single-threaded runtime.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyqueue::{
    Delivery, MessageData, MessageId, PartitionId, PushOutcome, Queue, QueueMessageStatus as Status, Result,
};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids, polled};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_crowd.pulls_share_slots", [NoPrefetch, AllWaitersWake], pulls_share_slots)
        .kills(&[Fault::OneTooMany]),
    case!(Queue, "queue_crowd.streams_share_slots", [NoPrefetch, AllWaitersWake], streams_share_slots)
        .kills(&[Fault::RemoveLostOneIn30, Fault::SharedDelivery])
        .deadline(LONG),
    case!(Queue, "queue_crowd.pushers_share_room", [Stored, DroppedPull], pushers_share_room)
        .kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_crowd.pushers_of_one_key", [PushResults, Deduplication], pushers_of_one_key)
        .needs(&[Need::DedupWhileLive])
        .kills(&[Fault::DedupRace]),
    case!(Queue, "queue_crowd.redrives", [DeadLetters], redrives)
        .kills(&[Fault::MoveCopies, Fault::SharedDelivery])
        .deadline(LONG),
    case!(Queue, "one_thread.pulls_share_slots", [NoPrefetch, AllWaitersWake], pulls_share_slots)
        .on_one_thread()
        .kills(&[Fault::OneTooMany]),
    case!(Queue, "one_thread.streams_share_slots", [NoPrefetch, AllWaitersWake], streams_share_slots)
        .on_one_thread()
        .kills(&[Fault::RemoveLostOneIn30])
        .deadline(LONG),
    case!(Queue, "one_thread.pushers_share_room", [Stored, DroppedPull], pushers_share_room)
        .on_one_thread()
        .kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "one_thread.redrives", [DeadLetters], redrives)
        .on_one_thread()
        .kills(&[Fault::NeedsSeveralThreads])
        .deadline(LONG),
    case!(Queue, "one_thread.queue_closers", [Close], super::close::ten_at_once)
        .on_one_thread()
        .kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "one_thread.idle_queue", [Resources], idle)
        .on_one_thread()
        .kills(&[Fault::SpinsWhileWaiting]),
];

const LONG: Duration = Duration::from_mins(1);

/// How much a queue may hold in all.
const SLOTS: usize = 2;

/// Pulls that wait for slots of one queue, and what they get.
struct Line {
    waiting: Vec<JoinHandle<()>>,
    got: mpsc::Receiver<Result<Vec<Delivery>>>,
}

impl Line {
    /// Starts this many pulls, all of which wait.
    async fn form(c: &Context, queue: &Queue, p: &PartitionId, pulls: usize) -> Self {
        let (say, got) = mpsc::channel(pulls);
        let wait = c.timing().soon * 5;
        let pull = |_| {
            let (pull, say) = (queue.pull(p).max(10).wait(wait).into_future(), say.clone());
            tokio::spawn(async move {
                // If nobody listens, the case has already ended.
                let _ = say.send(pull.await).await;
            })
        };
        let waiting = (0..pulls).map(pull).collect();
        tokio::time::sleep(c.timing().slack).await;
        Self { waiting, got }
    }

    /// Drops one pull in the middle.
    async fn one_leaves(&mut self) {
        let leaving = self.waiting.remove(self.waiting.len() / 2);
        leaving.abort();
        let _ = leaving.await;
    }

    /// Returns what one of them gets, which must be soon; it is unspecified whose turn it is.
    async fn next(&mut self, c: &Context) -> CaseResult<Vec<Delivery>> {
        let soon = c.timing().soon;
        let told = "one of the pulls that wait for a slot to get the one that was freed";
        let got = tokio::time::timeout(soon, self.got.recv()).await.ok().flatten();
        let got = got.ok_or_else(|| {
            c.failed(Clause::AllWaitersWake, &[], told, format!("none got it within {soon:?}"))
        })?;
        let got = c.ok(Clause::AllWaitersWake, "a pull that waits for a slot", got)?;
        c.equal(
            Clause::NoPrefetch,
            &handler_ids(&got),
            "with one slot freed, deliveries to one who waits:",
            &1,
            &got.len(),
        )?;
        Ok(got)
    }
}

/// Frees the slot of the first delivery.
async fn free_one(c: &Context, held: &mut Vec<Delivery>) -> CaseResult {
    let mut first = held.remove(0);
    c.settle(&mut first, Status::Processed).await
}

/// Pulls that wait for the slots of one queue get them in turn, one that gives up leaves its turn to the
/// next, and in the end all slots are there.
async fn pulls_share_slots(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_over(c.client(), |builder| builder.max_held(SLOTS))?;
    let sent = c.store(&queue, &p, c.messages(17, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, SLOTS).await?;
    let mut seen = handler_ids(&held);
    let mut line = Line::form(c, &queue, &p, 10).await;
    line.one_leaves().await;
    for _ in 0..line.waiting.len() {
        free_one(c, &mut held).await?;
        let got = line.next(c).await?;
        seen.extend(handler_ids(&got));
        held.extend(got);
    }
    while !held.is_empty() {
        free_one(c, &mut held).await?;
    }
    while seen.len() < sent.len() {
        // As many as there are slots, again and again.
        let mut all = c.hold(&queue, &p, SLOTS).await?;
        let none = c.ok(Clause::NoPrefetch, "a pull without room", queue.pull(&p).await)?;
        c.check(
            Clause::NoPrefetch,
            &sent,
            none.is_empty(),
            format!("{SLOTS} deliveries at once"),
            "one more",
        )?;
        seen.extend(handler_ids(&all));
        c.processed(&queue, &mut all).await?;
    }
    c.same_ids(Clause::NoPrefetch, "every message, once", &sent, &seen)
}

/// How many consumers share the queue.
const CONSUMERS: usize = 4;
/// How many messages each of them gets at least; if all got the same, each would get fifteen.
const SHARE: usize = 3;
const MESSAGES: usize = 60;

/// What the consumers got, and when one of them last got something.
struct Progress {
    seen: Vec<Vec<MessageId>>,
    last: Instant,
}

impl Progress {
    fn is_done(&self) -> bool {
        self.seen.iter().map(Vec::len).sum::<usize>() >= MESSAGES
    }
}

/// Streams of one queue and a loop of pulls share its slots: all of them go on, and everything comes, once.
async fn streams_share_slots(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_over(c.client(), |builder| builder.max_held(2 * SLOTS))?;
    let sent = c.store(&queue, &p, c.messages(MESSAGES, |_, task| task)).await?;
    let build = |_| c.ok(Clause::NoPrefetch, "a stream", queue.stream(&p).window(2 * SLOTS).build());
    let streams = (1..CONSUMERS).map(build).collect::<CaseResult<Vec<_>>>()?;
    // Until each waits for its turn.
    tokio::time::sleep(c.timing().slack).await;
    let progress = Mutex::new(Progress { seen: vec![Vec::new(); CONSUMERS], last: Instant::now() });
    let consuming = streams.into_iter().enumerate().map(|(index, mut stream)| {
        let progress = &progress;
        async move {
            while goes_on(c, progress)? {
                let Ok(Some(item)) = tokio::time::timeout(LOOK, stream.next()).await else { continue };
                done(c, progress, index, c.ok(Clause::PullBounds, "the stream's item", item)?).await?;
            }
            CaseResult::Ok(())
        }
    });
    let pulling = async {
        while goes_on(c, &progress)? {
            for handler in c.ok(Clause::PullBounds, "a pull", queue.pull(&p).wait(LOOK).await)? {
                done(c, &progress, CONSUMERS - 1, handler).await?;
            }
        }
        CaseResult::Ok(())
    };
    let (streamed, pulled) = tokio::join!(join_all(consuming), pulling);
    streamed.into_iter().collect::<CaseResult<()>>()?;
    pulled?;
    let seen = progress
        .into_inner()
        .map_err(|error| c.failed(Clause::Recovery, &[], "no panic", error.to_string()))?
        .seen;
    c.same_ids(Clause::NoPrefetch, "everything, at one of them", &sent, &seen.concat())?;
    let counts: Vec<usize> = seen.iter().map(Vec::len).collect();
    let told = format!("each of those who share the slots to get at least {SHARE}");
    c.check(
        Clause::AllWaitersWake,
        &[],
        counts.iter().all(|count| *count >= SHARE),
        told,
        format!("{counts:?}"),
    )
}

/// How long a message takes.
const WORK: Duration = Duration::from_millis(1);

/// How long a consumer waits before it looks whether all is done.
const LOOK: Duration = Duration::from_millis(100);

/// Returns whether there is more to come, which then must come soon.
fn goes_on(c: &Context, progress: &Mutex<Progress>) -> CaseResult<bool> {
    let Ok(progress) = progress.lock() else { return Ok(false) };
    if progress.is_done() {
        return Ok(false);
    }
    let seen = format!("nothing for {:?}, after {:?}", progress.last.elapsed(), progress.seen);
    let told = "somebody to get something as long as there is something";
    c.check(Clause::AllWaitersWake, &[], progress.last.elapsed() <= c.timing().soon, told, seen)
        .map(|()| true)
}

async fn done(c: &Context, progress: &Mutex<Progress>, index: usize, mut handler: Delivery) -> CaseResult {
    c.whole(&handler)?;
    // The work, during which others get their turn: a memory backend that is asked without a pause leaves
    // them none.
    tokio::time::sleep(WORK).await;
    c.settle(&mut handler, Status::Processed).await?;
    let id = handler.id();
    drop(handler);
    if let Ok(mut progress) = progress.lock() {
        progress.last = Instant::now();
        progress.seen.get_mut(index).into_iter().for_each(|seen| seen.push(id));
    }
    Ok(())
}

/// The room for messages that are being pushed, and how much of it each pusher needs.
const ROOM: usize = 4096;
const NEEDED: usize = ROOM / 3;
const PUSHERS: usize = 16;

/// Pushers that wait for the room of one queue get it in turn, those that give up leave it to the others, and
/// in the end all of it is there.
async fn pushers_share_room(c: &Context) -> CaseResult {
    let (p, client) = (c.partition("work")?, c.fresh().await?);
    let queue = c.queue_over(&client, |builder| builder.push_buffer_bytes(ROOM))?;
    let sized = |bytes: usize| c.message().with_header("h", "v".repeat(bytes));
    let messages: Vec<MessageData> = (0..PUSHERS).map(|_| sized(NEEDED)).collect();
    let pushing = messages.iter().enumerate().map(|(index, message)| {
        let push = queue.push(&p, message.clone());
        let soon = c.timing().soon * 3;
        async move {
            // Every fourth gives up, each one step later.
            if index % 4 == 1 {
                polled(1 + index / 4, push).await
            } else {
                tokio::time::timeout(soon, push).await.ok()
            }
        }
    });
    let answers = join_all(pushing).await;
    let mut stored = Vec::new();
    for ((index, message), answer) in messages.iter().enumerate().zip(answers) {
        let id = message.id();
        let ok = match answer {
            Some(Ok(PushOutcome::Stored(stored))) => stored == id,
            None => index % 4 == 1,
            Some(_) => false,
        };
        c.check(
            Clause::Stored,
            &[id],
            ok,
            "each push that waits for room to be stored",
            format!("{answer:?}"),
        )?;
        if index % 4 != 1 {
            stored.push(id);
        }
    }
    let whole = sized(2 * ROOM);
    let all_room = tokio::time::timeout(c.timing().soon * 3, queue.push(&p, whole.clone())).await;
    let ok = matches!(all_room, Ok(Ok(PushOutcome::Stored(id))) if id == whole.id());
    c.check(
        Clause::DroppedPull,
        &[whole.id()],
        ok,
        "a push that needs all the room to be stored",
        format!("{all_room:?}"),
    )?;
    stored.push(whole.id());
    c.ok(Clause::Close, "close", queue.close().await)?;
    let mut got = c.drain(&c.queue()?, &p, c.timing().slack).await?;
    // The messages of those that gave up may have been stored or not.
    got.retain(|id| stored.contains(id) || !messages.iter().any(|message| message.id() == *id));
    c.same_ids(Clause::Stored, "what was answered as stored", &stored, &got)
}

/// If several clients push one key through two queues at once, one stores its message; all are answered.
async fn pushers_of_one_key(c: &Context) -> CaseResult {
    let (p, queues) = (c.partition("work")?, [c.queue()?, c.fresh_queue().await?]);
    let pushes = queues.iter().cycle().take(PUSHERS).map(|queue| {
        let (message, p) = (c.message().with_dedup_key("the key"), &p);
        async move { (message.id(), queue.push(p, message).await) }
    });
    let answers = join_all(pushes).await;
    let stored: Vec<MessageId> = answers
        .iter()
        .filter(|(id, answer)| matches!(answer, Ok(PushOutcome::Stored(stored)) if stored == id))
        .map(|(id, _)| *id)
        .collect();
    let is_duplicate = |answer: &Result<PushOutcome>| match answer {
        Ok(PushOutcome::Duplicate(first)) => first.is_none_or(|first| stored.contains(&first)),
        _ => false,
    };
    let duplicates = answers.iter().filter(|(_, answer)| is_duplicate(answer)).count();
    let told = format!("one Stored, and Duplicate of it for the other {}", PUSHERS - 1);
    let ok = (stored.len(), duplicates) == (1, PUSHERS - 1);
    c.check(
        Clause::Deduplication,
        &stored,
        ok,
        told,
        format!("{} Stored, {duplicates} Duplicate of it", stored.len()),
    )?;
    let got = c.drain(&c.queue()?, &p, c.timing().slack).await?;
    c.same_ids(Clause::Deduplication, "the one message", &stored, &got)
}

/// Several redrives at once, of two queues: each of them ends, and each dead letter is put back by one of
/// them.
async fn redrives(c: &Context) -> CaseResult {
    const DEAD: usize = 30;
    let (p, queues) = (c.partition("work")?, [c.queue()?, c.fresh_queue().await?]);
    let [queue, other] = &queues;
    let sent = c.store(queue, &p, c.messages(DEAD, |_, task| task)).await?;
    let mut held = c.hold(queue, &p, DEAD).await?;
    let all = held.iter_mut().map(|handler| (handler, Status::poisonous("as the case wants it")));
    for answer in queue.settle_many(all).await {
        c.ok(Clause::SettleOutcomes, "a settlement", answer)?;
    }
    drop(held);
    let redrives = [queue, other, queue].map(|queue| {
        let dead = queue.dead_letters(&p);
        let longest = c.timing().soon * 5;
        async move {
            tokio::time::timeout(longest, dead?.redrive().into_future()).await.map_err(|_| late(longest))?
        }
    });
    let mut moved = 0;
    for redriven in join_all(redrives).await {
        moved += c.ok(Clause::DeadLetters, "each of several redrives", redriven)?.moved;
    }
    c.equal(Clause::DeadLetters, &sent, "dead letters put back, in all,", &(DEAD as u64), &moved)?;
    let got = c.drain(&c.queue()?, &p, c.timing().slack).await?;
    c.same_ids(Clause::DeadLetters, "what was dead", &sent, &got)?;
    c.client().nothing(&p.dead_letters(), c.timing().slack, Clause::DeadLetters, "no dead letter left").await
}

fn late(longest: Duration) -> anyqueue::Error {
    anyqueue::Error::new(anyqueue::ErrorKind::TimedOut, format!("not ended after {longest:?}"))
}

/// Pulls that wait, for slots or for messages, take no processor time, even after a slot has passed from one
/// to another.
async fn idle(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_over(c.client(), |builder| builder.max_held(SLOTS))?;
    c.store(&queue, &p, c.messages(SLOTS + 1, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, SLOTS).await?;
    let mut line = Line::form(c, &queue, &p, 3).await;
    c.thread_is_idle(Clause::Resources, "pulls wait for slots").await?;
    free_one(c, &mut held).await?;
    held.extend(line.next(c).await?);
    c.thread_is_idle(Clause::Resources, "the others go on waiting").await?;
    // The next pull has a slot, and waits for a message.
    free_one(c, &mut held).await?;
    c.thread_is_idle(Clause::Resources, "one waits for a message and one for a slot").await?;
    for _ in 0..2 {
        c.store(&queue, &p, vec![c.message()]).await?;
        let mut got = line.next(c).await?;
        c.processed(&queue, &mut got).await?;
    }
    c.processed(&queue, &mut held).await
}
