//! Several clients at once of everything that waits, ends or must be unique: each gets its turn, one wins
//! where only one can, and nobody is forgotten.
//!
//! The cases that wait run a second time on a single-threaded runtime.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullRequest, RawDelivery, Storage};
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome, Result, SettleOutcome};
use futures_util::future::{join, join_all, join3};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, ids, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "crowd.settlers", [SettleOutcomes, SettleTwice], settlers).kills(&[Fault::SettleRace]),
    case!(Storage, "crowd.pushers_of_one_id", [PushErrors, Deduplication], pushers_of_one_id)
        .needs(&[Need::UniqueIds])
        .kills(&[Fault::IdRace]),
    case!(Storage, "crowd.closers", [Close], closers)
        .kills(&[Fault::ClosesBlockEachOther, Fault::CloseDoesNotWake]),
    case!(Storage, "crowd.openers", [Init], openers).kills(&[Fault::InitStartsOver, Fault::InitEmpties]),
    case!(Storage, "crowd.returned", [ReadyAtOnce, AllWaitersWake], returned).kills(&[Fault::ReturnWakesOne]),
    case!(Storage, "crowd.resumed", [AllWaitersWake, Pause], resumed)
        .needs(&[Need::Pause])
        .kills(&[Fault::ResumeWakesOne]),
    case!(Storage, "crowd.matured", [AllWaitersWake, Delays], matured)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::OneWatchesTheTime]),
    case!(Storage, "crowd.postponed", [AllWaitersWake, Delays], postponed)
        .needs(&[Need::PostponeDelay])
        .kills(&[Fault::OneWatchesTheTime]),
    case!(Storage, "crowd.leases_end", [AllWaitersWake, LeaseEnd], leases_end)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::OneWatchesTheTime]),
    case!(Storage, "crowd.pullers_of_a_group", [AllWaitersWake, Groups], pullers_of_a_group)
        .needs(&[Need::Groups])
        .kills(&[Fault::FreedGroupForgetsOthers, Fault::GroupUnlocksAtDelivery]),
    case!(Storage, "one_thread.returned", [ReadyAtOnce, AllWaitersWake], returned)
        .on_one_thread()
        .kills(&[Fault::WaitBlocksThread, Fault::NeedsSeveralThreads]),
    case!(Storage, "one_thread.matured", [AllWaitersWake, Delays], matured)
        .needs(&[Need::PushDelay])
        .on_one_thread()
        .kills(&[Fault::OneWatchesTheTime, Fault::WaitBlocksThread]),
    case!(Storage, "one_thread.settlers", [SettleOutcomes, SettleTwice], settlers)
        .on_one_thread()
        .kills(&[Fault::SettleRace]),
    case!(Storage, "one_thread.closers", [Close], closers).on_one_thread().kills(&[Fault::WaitBlocksThread]),
    case!(Storage, "one_thread.idle", [Resources], idle).on_one_thread().kills(&[Fault::SpinsWhileWaiting]),
];

/// How many clients do the same at once, where they need not wait for each other.
const MANY: usize = 8;

const WAITERS: usize = 3;

/// Every way to end a delivery.
fn actions(p: &PartitionId) -> [Action; 5] {
    let (delay, headers) = (Duration::ZERO, None);
    [
        Action::Remove,
        Action::Release,
        Action::Retry,
        Action::Postpone { delay, headers: None },
        Action::Move { to: p.dead_letters(), headers },
    ]
}

/// Of several clients that settle one delivery at once, one wins, whatever the others want, and its action is
/// performed once.
async fn settlers(c: &Context) -> CaseResult {
    let rounds = (0..actions(&c.partition("work")?).len()).map(|round| settled_by_one(c, round));
    join_all(rounds).await.into_iter().collect()
}

/// In each round another action comes first; in the last round all want the same.
async fn settled_by_one(c: &Context, round: usize) -> CaseResult {
    let (p, client) = (c.partition(&format!("work{round}"))?, c.client());
    let sent = client.push(&p, &[c.message()]).await?;
    let [held] = client.take_exact(&p).await?;
    let mut wanted = actions(&p);
    wanted.rotate_left(round);
    if round + 1 == wanted.len() {
        wanted.fill(Action::Remove);
    }
    let all = wanted.iter().cycle().take(MANY);
    let answers = join_all(all.clone().map(|action| client.try_settle(&held, action.clone()))).await;
    let answers = answers.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let settled = |(_, answer): &(&Action, &SettleOutcome)| **answer == SettleOutcome::Settled;
    let winners: Vec<&Action> = all.zip(&answers).filter(settled).map(|(action, _)| action).collect();
    let told = format!("one of {MANY} settlements at once to be Settled");
    c.check(Clause::SettleOutcomes, &sent, winners.len() == 1, told, format!("{answers:?}"))?;
    let place = match winners.first() {
        Some(Action::Remove) | None => None,
        Some(Action::Move { to, .. }) => Some(to),
        Some(_) => Some(&p),
    };
    if let Some(place) = place {
        let [back] = client.take_exact(place).await?;
        client.remove(&[back]).await?;
    }
    let dead = p.dead_letters();
    let empty = |place| client.pull_with(place, client.request(1, c.timing().slack));
    let (live, dead) = join(empty(&p), empty(&dead)).await;
    c.in_order(Clause::SettleTwice, "nothing beyond what the winner wanted", &[], &[live?, dead?].concat())
}

/// Of several clients that push one message at once, one stores it; the others learn that it is there.
async fn pushers_of_one_id(c: &Context) -> CaseResult {
    let (p, message) = (c.partition("work")?, c.message());
    let clients = [c.client().clone(), c.fresh().await?, c.fresh().await?];
    let pushes = clients.iter().cycle().take(MANY).map(|client| {
        let (p, message) = (&p, message.clone());
        async move { client.storage().push(p, &[message]).await }
    });
    let answers = join_all(pushes).await.concat();
    let answers = c.ok(Clause::PushErrors, "each push", answers.into_iter().collect::<Result<Vec<_>>>())?;
    let id = message.id();
    c.equal(Clause::PushResults, &[id], "the number of answers", &MANY, &answers.len())?;
    let is_duplicate = |answer: &PushOutcome| match answer {
        PushOutcome::Duplicate(first) => first.is_none_or(|first| first == id),
        PushOutcome::Stored(_) | PushOutcome::Replaced(_) => false,
    };
    let stored = answers.iter().filter(|answer| **answer == PushOutcome::Stored(id)).count();
    let duplicates = answers.iter().filter(|answer| is_duplicate(answer)).count();
    let told = format!("Stored once, and Duplicate of it for the other {}", MANY - 1);
    c.check(
        Clause::Deduplication,
        &[id],
        (stored, duplicates) == (1, MANY - 1),
        told,
        format!("{answers:?}"),
    )?;
    let got = c.client().take(&p, 1).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Deduplication, "one message only").await?;
    c.client().remove(&got).await
}

/// Several tasks close one client at once while it waits and pushes: all of them end, and acknowledged
/// messages are there.
async fn closers(c: &Context) -> CaseResult {
    let (p, empty, client) = (c.partition("work")?, c.partition("empty")?, c.fresh().await?);
    let request = || client.request(1, c.timing().soon * 2);
    let waiting = async {
        let answers = join_all((0..WAITERS).map(|_| client.storage().pull(&empty, request()))).await;
        (answers, Instant::now())
    };
    let messages = c.messages(MANY, |_, message| message);
    let pushing = join_all(messages.iter().map(|message| async {
        tokio::task::yield_now().await;
        client.storage().push(&p, std::slice::from_ref(message)).await
    }));
    let closing = async {
        c.pull_begins(&client).await?;
        let start = Instant::now();
        let closes = (0..MANY).map(|_| tokio::time::timeout(c.timing().soon, client.storage().close()));
        let closes = join_all(closes).await;
        CaseResult::Ok((closes, start, start.elapsed()))
    };
    let ((waited, ended), pushed, all_closed) = join3(waiting, pushing, closing).await;
    let (closes, start, took) = all_closed?;
    for close in closes {
        let ok = matches!(close, Ok(Ok(())));
        c.check(Clause::Close, &[], ok, "each close of several at once to succeed", format!("{close:?}"))?;
    }
    let bounds = (Duration::ZERO, c.timing().soon);
    c.took(Clause::Close, &[], "the last close", took, bounds)?;
    c.took(Clause::Close, &[], "the end of all waits", ended.saturating_duration_since(start), bounds)?;
    for answer in waited {
        let ok = answer.as_ref().map_or_else(is_closed, Vec::is_empty);
        c.check(
            Clause::Close,
            &[],
            ok,
            "a pull that waited to end with nothing, or closed",
            format!("{answer:?}"),
        )?;
    }
    let mut stored = Vec::new();
    for answer in pushed.concat() {
        match answer {
            Ok(outcome) => stored.push(outcome),
            Err(error) => {
                c.check(Clause::Close, &[], is_closed(&error), "stored, or closed", error.to_string())?;
            }
        }
    }
    let expected: Vec<MessageId> = stored
        .iter()
        .filter_map(|outcome| if let PushOutcome::Stored(id) = outcome { Some(*id) } else { None })
        .collect();
    let got = c.client().take(&p, expected.len()).await?;
    c.same(Clause::Close, "what was acknowledged", &expected, &got)?;
    c.client().remove(&got).await
}

fn is_closed(error: &anyqueue::Error) -> bool {
    error.kind() == anyqueue::ErrorKind::Closed
}

/// Several clients open and initialise a storage that nobody has used yet, and each can use it at once.
async fn openers(c: &Context) -> CaseResult {
    let (p, harness) = (c.partition("work")?, c.harness());
    let namespace = format!("opened_{}", uuid::Uuid::new_v4().simple());
    let messages = c.messages(MANY, |_, message| message);
    let opened = messages.iter().map(|message| async {
        let storage = harness.open(&namespace).await?;
        storage.init().await?;
        storage.push(&p, std::slice::from_ref(message)).await.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(storage)
    });
    let opened: Vec<Result<Arc<dyn Storage>>> = join_all(opened).await;
    let opened = c.ok(
        Clause::Init,
        "each of several that open at once",
        opened.into_iter().collect::<Result<Vec<_>>>(),
    )?;
    let mut came = Vec::new();
    for storage in &opened {
        let request = PullRequest::new(1, c.timing().soon, c.timing().long_lease);
        let got = c.ok(Clause::PullBounds, "a pull", storage.pull(&p, request).await)?;
        let all: Vec<_> = got.iter().map(|held| settlement(held, Action::Remove)).collect();
        if !all.is_empty() {
            let removed = storage.settle(&all).await;
            c.ok(Clause::SettleOutcomes, "a removal", removed.into_iter().collect::<Result<Vec<_>>>())?;
        }
        came.extend(ids(&got));
    }
    for storage in &opened {
        c.ok(Clause::Close, "close", storage.close().await)?;
    }
    harness.remove(&namespace).await;
    let sent: Vec<_> = messages.iter().map(MessageData::id).collect();
    c.same_ids(Clause::Init, "what each pushed after its own init", &sent, &came)
}

/// What several waiting clients got, and when the last of them got it.
struct Woken {
    got: Vec<(Client, Vec<RawDelivery>)>,
    at: Instant,
}

/// Lets several clients wait for as long as necessary, and then triggers what gives one message to each.
async fn each_of_several<T>(
    c: &Context,
    p: &PartitionId,
    happens: impl Future<Output = CaseResult<T>>,
) -> CaseResult<(Woken, T)> {
    let waiters = [c.fresh().await?, c.fresh().await?, c.fresh().await?];
    // Twice as long as anything awaited here may take, so that the end of the wait cannot be mistaken for a
    // wake-up.
    let wait = c.timing().latest(c.timing().lease.max(c.timing().delay)) * 2;
    let waiting = waiters.iter().map(|waiter| async move {
        let got = waiter.pull_with(p, waiter.request(1, wait)).await?;
        CaseResult::Ok((waiter.clone(), got, Instant::now()))
    });
    let happening = async {
        for waiter in &waiters {
            c.pull_begins(waiter).await?;
        }
        tokio::time::sleep(c.timing().delay / 3).await;
        happens.await
    };
    let (waited, happened) = join(join_all(waiting), happening).await;
    let waited = waited.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let at = waited.iter().map(|(.., at)| *at).max().unwrap_or_else(Instant::now);
    let got = waited.into_iter().map(|(client, got, _)| (client, got)).collect();
    Ok((Woken { got, at }, happened?))
}

/// Judges that each client got one message, and the last of them in time; removes the messages.
async fn one_each(
    c: &Context,
    clause: Clause,
    woken: Woken,
    sent: &[MessageId],
    (since, bounds): (Instant, (Duration, Duration)),
) -> CaseResult {
    let all: Vec<RawDelivery> = woken.got.iter().flat_map(|(_, got)| got.clone()).collect();
    c.same(clause, "one for each who waits", sent, &all)?;
    let took = woken.at.saturating_duration_since(since);
    // Several are woken one after another, and a busy machine delays each of them.
    let bounds = (bounds.0, bounds.1 + crate::context::scheduling());
    c.took(clause, sent, "the last of several that wait to be woken", took, bounds)?;
    for (client, got) in &woken.got {
        client.remove(got).await?;
    }
    Ok(())
}

/// Several messages that come back at once, in one call, wake as many waiters.
async fn returned(c: &Context) -> CaseResult {
    let (p, holder) = (c.partition("work")?, c.client());
    for action in [Action::Release, Action::Retry, Action::Postpone { delay: Duration::ZERO, headers: None }]
    {
        let sent = holder.push(&p, &c.messages(WAITERS, |_, message| message)).await?;
        let held = holder.take(&p, WAITERS).await?;
        let (woken, since) = each_of_several(c, &p, async {
            let since = Instant::now();
            holder.settle_all(&held, &action).await.map(|()| since)
        })
        .await?;
        one_each(c, Clause::AllWaitersWake, woken, &sent, (since, (Duration::ZERO, c.timing().soon))).await?;
    }
    Ok(())
}

/// A resume wakes all waiters.
async fn resumed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(WAITERS, |_, message| message)).await?;
    let pause = c.client().pause()?;
    c.ok(Clause::Pause, "pausing", pause.set_paused(&p, true).await)?;
    let (woken, since) = each_of_several(c, &p, async {
        let since = Instant::now();
        c.ok(Clause::Pause, "resuming", pause.set_paused(&p, false).await).map(|()| since)
    })
    .await?;
    one_each(c, Clause::AllWaitersWake, woken, &sent, (since, (Duration::ZERO, c.timing().soon))).await
}

/// Delays that end together wake as many waiters.
async fn matured(c: &Context) -> CaseResult {
    let (p, delay) = (c.partition("work")?, c.timing().delay);
    let (woken, (sent, since)) = each_of_several(c, &p, async {
        let (since, messages) = (Instant::now(), c.messages(WAITERS, |_, message| message.with_delay(delay)));
        CaseResult::Ok((c.client().push(&p, &messages).await?, since))
    })
    .await?;
    one_each(c, Clause::AllWaitersWake, woken, &sent, (since, (delay, c.timing().latest(delay)))).await
}

/// Postponements that end together do the same.
async fn postponed(c: &Context) -> CaseResult {
    let (p, delay) = (c.partition("work")?, c.timing().delay);
    let sent = c.client().push(&p, &c.messages(WAITERS, |_, message| message)).await?;
    let held = c.client().take(&p, WAITERS).await?;
    let (woken, since) = each_of_several(c, &p, async {
        let since = Instant::now();
        c.client().settle_all(&held, &Action::Postpone { delay, headers: None }).await.map(|()| since)
    })
    .await?;
    one_each(c, Clause::AllWaitersWake, woken, &sent, (since, (delay, c.timing().latest(delay)))).await
}

/// Leases that end together do the same, although nobody announces their end.
async fn leases_end(c: &Context) -> CaseResult {
    let (p, lease) = (c.partition("work")?, c.timing().lease);
    let sent = c.client().push(&p, &c.messages(WAITERS, |_, message| message)).await?;
    let held = c.client().take(&p, WAITERS).await?;
    let (woken, since) = each_of_several(c, &p, async {
        let since = Instant::now();
        for held in &held {
            c.client().extend(held, lease).await?;
        }
        CaseResult::Ok(since)
    })
    .await?;
    one_each(c, Clause::AllWaitersWake, woken, &sent, (since, (lease, c.timing().latest(lease)))).await
}

/// Several clients wait for one group: each removal gives the next member to one of them, and nobody is
/// forgotten.
async fn pullers_of_a_group(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (woken, sent) = each_of_several(c, &p, async {
        let messages = c.messages(WAITERS, |_, message| message.with_group("g"));
        let sent = c.client().push(&p, &messages).await?;
        for (n, id) in sent.iter().enumerate() {
            let held = c.delivered(*id).await?;
            let others = sent.get(n + 1..).unwrap_or_default();
            let early = others.iter().find(|other| c.lease_of(**other).is_ok());
            let told = "no other of the group while one is held";
            c.check(Clause::Groups, &sent, early.is_none(), told, format!("{early:?}"))?;
            let removal = anyqueue::adapter::Settlement::new(held, Action::Remove);
            c.client().settle(&[removal]).await?;
        }
        CaseResult::Ok(sent)
    })
    .await?;
    let all: Vec<RawDelivery> = woken.got.into_iter().flat_map(|(_, got)| got).collect();
    c.same(Clause::AllWaitersWake, "one for each who waits", &sent, &all)
}

/// Several waiting clients take no processor time: others on their thread have it to themselves.
async fn idle(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.fresh().await?);
    let wait = c.timing().latest(c.timing().soon);
    let waiting = join_all(
        [c.client(), &other, c.client()].map(|client| client.pull_with(&p, client.request(1, wait))),
    );
    let looking = async {
        c.pull_begins(c.client()).await?;
        c.thread_is_idle(Clause::Resources, "pulls wait").await?;
        c.client().push(&p, &c.messages(WAITERS, |_, message| message)).await
    };
    let (got, sent) = join(waiting, looking).await;
    let sent = sent?;
    let got = got.into_iter().collect::<CaseResult<Vec<_>>>()?.concat();
    c.same(Clause::AllWaitersWake, "one for each who waits", &sent, &got)
}
