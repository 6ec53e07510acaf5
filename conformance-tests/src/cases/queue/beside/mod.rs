//! Management calls, beside producers and consumers that never stop: each call ends, disturbs nobody's work,
//! and truthfully reports what it did, so that in the end every message is accounted for.

mod work;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::Storage;
use anyqueue::{CancelOutcome, DeleteOutcome, MessageId, Page, PartitionId, Queue, Result, SettleOutcome};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Client, Context};
use crate::fault::Fault;
use crate::history::Op;
use crate::need::Need;
use crate::verdict::{CaseResult, Stop};
use work::{DEADLINE, Fates, Work};

pub(super) const CASES: &[Case] = &[
    case!(Queue, "beside.purge", [Deletion, Recovery], purge)
        .needs(&[Need::Purge])
        .kills(&[Fault::PurgeCountsFirst, Fault::PurgeUntilEmpty])
        .deadline(LONG),
    case!(Queue, "beside.purge_dead", [DeadLetters, Deletion, Recovery], purge_dead)
        .needs(&[Need::Purge])
        .kills(&[Fault::PurgeCountsFirst])
        .deadline(LONG),
    case!(Queue, "beside.purge_dead_by_pulls", [DeadLetters, Recovery], purge_dead_by_pulls)
        .kills(&[Fault::MoveLostBesidePush])
        .deadline(LONG),
    case!(Queue, "beside.redrive", [DeadLetters, Recovery], redrive)
        .kills(&[Fault::MoveLostBesidePush])
        .deadline(LONG),
    case!(Queue, "beside.delete", [Deletion, Recovery], delete)
        .needs(&[Need::Delete, Need::Browse])
        .kills(&[Fault::DeleteTakesClaimed])
        .deadline(LONG),
    case!(Queue, "beside.delete_where", [Deletion, Recovery], delete_where)
        .needs(&[Need::Delete, Need::Browse])
        .kills(&[Fault::DeleteTakesClaimed])
        .deadline(LONG),
    case!(Queue, "beside.cancel", [Deletion, Recovery], cancel)
        .needs(&[Need::Cancel, Need::Browse])
        .kills(&[Fault::CancelTakesClaimed])
        .deadline(LONG),
    case!(Queue, "beside.counts", [Inspection, Recovery], counts)
        .needs(&[Need::Counts])
        .kills(&[Fault::CountsStale])
        .deadline(LONG),
    case!(Queue, "beside.browse", [Inspection, Recovery], browse)
        .needs(&[Need::Browse])
        .kills(&[Fault::BrowseByNumber, Fault::BrowseLocksOut])
        .deadline(LONG),
    case!(Queue, "beside.partitions", [Inspection, Recovery], partitions)
        .needs(&[Need::List])
        .kills(&[Fault::ListByNumber])
        .deadline(LONG),
    case!(Queue, "beside.pause", [Pause, Recovery], pause)
        .needs(&[Need::Pause])
        .kills(&[Fault::PauseMissesBusy])
        .deadline(LONG),
];

const LONG: Duration = Duration::from_mins(3);

/// This many calls are made, and more until one has found something to do; but not forever.
const CALLS: usize = 12;
const MOST_CALLS: usize = 60;

/// A slow server is called less often.
const ENOUGH: Duration = Duration::from_secs(5);

/// How much is pushed and settled between two calls.
const STEP: (usize, usize) = (6, 6);

/// How many messages wait when the work begins.
const BACKLOG: usize = 60;

/// A call beside the work, and how many messages it reports to have taken.
type Call = for<'a> fn(&'a Admin) -> Pin<Box<dyn Future<Output = Result<u64>> + Send + 'a>>;

/// One management call.
struct Managed {
    name: &'static str,
    clause: Clause,
    fates: Fates,
    call: Call,
    /// How much of a call to the storage counts towards what it reports.
    took: fn(&Op) -> usize,
}

/// The client that makes the calls.
struct Admin {
    client: Client,
    queue: Queue,
    p: PartitionId,
}

impl Admin {
    async fn new(c: &Context) -> CaseResult<Self> {
        let client = c.fresh().await?;
        Ok(Self { queue: c.queue_over(&client, |builder| builder)?, client, p: c.partition("work")? })
    }

    /// Returns the oldest messages that are there.
    async fn oldest(&self) -> Result<Vec<MessageId>> {
        let page = self.queue.browse(&self.p, Page::of(8)).await?;
        Ok(page.iter().map(|browsed| browsed.message.id()).collect())
    }

    /// Returns how many messages calls of this client took, according to the storage.
    fn took(&self, c: &Context, took: fn(&Op) -> usize) -> u64 {
        let events = c.history().events();
        let mine = events.iter().filter(|event| *event.client == *self.client.name());
        mine.map(|event| took(&event.op) as u64).sum()
    }
}

/// Makes a call that must end although the work goes on.
async fn bounded<T>(c: &Context, name: &str, call: impl Future<Output = T>) -> CaseResult<T> {
    tokio::time::timeout(DEADLINE, call).await.map_err(|_| {
        let expected = format!("{name} to end within {DEADLINE:?}, though producers and consumers go on");
        c.failed(Clause::Recovery, &[], expected, "it went on")
    })
}

/// Makes the call again and again beside the work. The account then judges that what was taken is what the
/// storage reported.
async fn beside(c: &Context, managed: &Managed, admin: Admin) -> CaseResult {
    let Managed { name, clause, fates, call, took } = managed;
    c.client().push(&admin.p, &c.messages(BACKLOG, |_, message| message)).await?;
    let mut work = Work::begin(c, std::slice::from_ref(&admin.p), 2, *fates).await?;
    let (start, mut calls, mut said) = (Instant::now(), 0, 0);
    while said == 0 || calls < CALLS && start.elapsed() < ENOUGH {
        work.goes_on(c, (Clause::Recovery, name), STEP).await?;
        said += c.ok(*clause, name, bounded(c, name, call(&admin)).await?)?;
        calls += 1;
        if calls == MOST_CALLS && said == 0 {
            return Err(Stop::Inconclusive(format!("{name} never found anything to do")));
        }
    }
    work.goes_on(c, (Clause::Recovery, name), STEP).await?;
    work.end(c).await?;
    c.equal(*clause, &[], &format!("what {name} says that it took:"), &admin.took(c, *took), &said)
}

async fn purge(c: &Context) -> CaseResult {
    let purge = Managed {
        name: "a purge",
        clause: Clause::Deletion,
        fates: Fates::Mixed,
        call: |admin| Box::pin(admin.queue.purge(&admin.p)),
        took: purged,
    };
    beside(c, &purge, Admin::new(c).await?).await
}

fn purged(op: &Op) -> usize {
    if let Op::Purge { outcome: Ok(took), .. } = op { *took } else { 0 }
}

async fn purge_of_dead(admin: &Admin) -> Result<u64> {
    admin.queue.dead_letters(&admin.p)?.purge().await
}

async fn purge_dead(c: &Context) -> CaseResult {
    let purge = Managed {
        name: "a purge of the dead letters",
        clause: Clause::Deletion,
        fates: Fates::Deadly,
        call: |admin| Box::pin(purge_of_dead(admin)),
        took: purged,
    };
    beside(c, &purge, Admin::new(c).await?).await
}

/// If the backend has no purge, core pulls and removes; other consumers of the same backend let the messages
/// that they get die.
async fn purge_dead_by_pulls(c: &Context) -> CaseResult {
    let purge = Managed {
        name: "a purge of the dead letters by pulls",
        clause: Clause::DeadLetters,
        fates: Fates::Deadly,
        call: |admin| Box::pin(purge_of_dead(admin)),
        took: settled,
    };
    let client = c.fresh().await?;
    let storage = Altered::new(client.storage(), |declared| declared.inspect.purge = false);
    let storage: Arc<dyn Storage> = storage;
    let queue = Queue::builder(storage).defaults(c.long_options()).build();
    let admin =
        Admin { queue: c.ok(Clause::Unsupported, "a queue", queue)?, client, p: c.partition("work")? };
    beside(c, &purge, admin).await
}

/// Returns how many were settled for good: removed, or moved back.
fn settled(op: &Op) -> usize {
    let Op::Settle { settlements, outcomes } = op else { return 0 };
    let done = |(settlement, outcome): &(&anyqueue::adapter::Settlement, &Result<SettleOutcome>)| {
        let for_good = matches!(
            settlement.action,
            anyqueue::adapter::Action::Remove | anyqueue::adapter::Action::Move { .. }
        );
        for_good && matches!(outcome, Ok(SettleOutcome::Settled))
    };
    settlements.iter().zip(outcomes).filter(done).count()
}

/// Consumers let most of them die again.
async fn redrive(c: &Context) -> CaseResult {
    let redrive = Managed {
        name: "a redrive",
        clause: Clause::DeadLetters,
        fates: Fates::Deadly,
        call: |admin| Box::pin(async move { Ok(admin.queue.dead_letters(&admin.p)?.redrive().await?.moved) }),
        took: settled,
    };
    beside(c, &redrive, Admin::new(c).await?).await
}

async fn delete(c: &Context) -> CaseResult {
    let delete = Managed {
        name: "a deletion",
        clause: Clause::Deletion,
        fates: Fates::Mixed,
        call: |admin| {
            Box::pin(async move {
                let answers = admin.queue.delete(&admin.p, &admin.oldest().await?).await?;
                let answers = answers.into_iter().collect::<Result<Vec<_>>>()?;
                Ok(answers.iter().filter(|answer| **answer == DeleteOutcome::Deleted).count() as u64)
            })
        },
        took: deleted,
    };
    beside(c, &delete, Admin::new(c).await?).await
}

fn deleted(op: &Op) -> usize {
    let Op::Delete { outcomes, .. } = op else { return 0 };
    outcomes.iter().filter(|outcome| matches!(outcome, Ok(DeleteOutcome::Deleted))).count()
}

async fn delete_where(c: &Context) -> CaseResult {
    let delete = Managed {
        name: "a deletion by filter",
        clause: Clause::Deletion,
        fates: Fates::Mixed,
        call: |admin| {
            Box::pin(async move {
                let mut odd = false;
                let every_other = |_: &anyqueue::Browsed| {
                    odd = !odd;
                    odd
                };
                Ok(admin.queue.delete_where(&admin.p, Page::of(1000), every_other).await?.deleted)
            })
        },
        took: deleted,
    };
    beside(c, &delete, Admin::new(c).await?).await
}

async fn cancel(c: &Context) -> CaseResult {
    let cancel = Managed {
        name: "a cancellation",
        clause: Clause::Deletion,
        fates: Fates::Mixed,
        call: |admin| {
            Box::pin(async move {
                let answers = admin.queue.request_cancel(&admin.p, &admin.oldest().await?).await?;
                let answers = answers.into_iter().collect::<Result<Vec<_>>>()?;
                Ok(answers.iter().filter(|answer| **answer == CancelOutcome::Removed).count() as u64)
            })
        },
        took: |op| {
            let Op::Cancel { outcomes, .. } = op else { return 0 };
            outcomes.iter().filter(|outcome| matches!(outcome, Ok(CancelOutcome::Removed))).count()
        },
    };
    beside(c, &cancel, Admin::new(c).await?).await
}

/// The history judges each count by what can have been there during the call.
async fn counts(c: &Context) -> CaseResult {
    let counts = Managed {
        name: "counting",
        clause: Clause::Inspection,
        fates: Fates::Mixed,
        call: |admin| Box::pin(async move { admin.queue.counts(&admin.p).await.map(|_| 1) }),
        took: |op| usize::from(matches!(op, Op::Counts { outcome: Ok(_), .. })),
    };
    beside(c, &counts, Admin::new(c).await?).await
}

/// Judges that whatever stays was seen, and everything at most once.
fn seen_once<T: Ord + Clone>(c: &Context, stays: &[T], seen: &[T]) -> CaseResult {
    let mut times = BTreeMap::<&T, usize>::new();
    for one in seen {
        *times.entry(one).or_default() += 1;
    }
    let missed = stays.iter().filter(|one| !times.contains_key(one)).count();
    let twice = times.values().filter(|times| **times > 1).count();
    let told = format!("all {} that stay, and nothing twice", stays.len());
    c.check(
        Clause::Inspection,
        &[],
        missed + twice == 0,
        told,
        format!("{missed} not shown, {twice} shown twice"),
    )
}

/// Among messages that come and go, there are some that stay because they are held. Pages show each of these
/// once, and block nobody.
async fn browse(c: &Context) -> CaseResult {
    const PAGE: usize = 10;
    let (admin, beside) = (Admin::new(c).await?, (Clause::Inspection, "browsing"));
    // Their ids lie between those of the others.
    let all = c.messages(BACKLOG * 4 / 3, |_, message| message);
    let (stays, goes): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(index, _)| index % 4 == 0);
    let of = |some: Vec<(usize, _)>| some.into_iter().map(|(_, message)| message).collect::<Vec<_>>();
    let stays = c.client().push(&admin.p, &of(stays)).await?;
    let held = c.client().take(&admin.p, stays.len()).await?;
    c.client().push(&admin.p, &of(goes)).await?;
    let mut work = Work::begin(c, std::slice::from_ref(&admin.p), 2, Fates::Mixed).await?;
    for _ in 0..3 {
        let mut seen: Vec<MessageId> = Vec::new();
        loop {
            let page = bounded(
                c,
                "browsing",
                admin.queue.browse(&admin.p, Page::of(PAGE).after(seen.last().copied())),
            )
            .await?;
            let page = c.ok(Clause::Inspection, "browsing", page)?;
            seen.extend(page.iter().map(|browsed| browsed.message.id()));
            // A backend that keeps finding new messages is not followed forever.
            if page.len() < PAGE || seen.last() > stays.last() || seen.len() > 100 * PAGE {
                break;
            }
            work.goes_on(c, beside, (0, 4)).await?;
        }
        seen_once(c, &stays, &seen)?;
        // Nobody waits for the rest of the pages.
        work.goes_on(c, beside, STEP).await?;
    }
    work.end(c).await?;
    c.client().remove(&held).await
}

/// Among partitions that come and go, there are some that stay. Pages of the list show each of these once, in
/// order.
async fn partitions(c: &Context) -> CaseResult {
    let (admin, beside) = (Admin::new(c).await?, (Clause::Inspection, "listing partitions"));
    let (mut stays, mut goes) = (Vec::new(), Vec::new());
    for index in 0..8 {
        stays.push(c.partition(&format!("p{index}-stays"))?);
        goes.push(c.partition(&format!("p{index}-comes-and-goes"))?);
    }
    for partition in &stays {
        c.client().push(partition, &[c.message()]).await?;
    }
    let mut work = Work::begin(c, &goes, 1, Fates::Good).await?;
    let start = Instant::now();
    for _ in (0..CALLS).take_while(|_| start.elapsed() < ENOUGH) {
        let mut seen: Vec<PartitionId> = Vec::new();
        loop {
            let page =
                bounded(c, "the list", admin.queue.partitions(Page::of(2).after(seen.last().cloned())))
                    .await?;
            let page = c.ok(Clause::Inspection, "the list", page)?;
            seen.extend(page.iter().cloned());
            if page.is_empty() || seen.len() > 2 * (stays.len() + goes.len()) {
                break;
            }
            work.goes_on(c, beside, (2, 2)).await?;
        }
        seen_once(c, &stays, &seen)?;
        c.check(Clause::Inspection, &[], seen.is_sorted(), "the list in order", format!("{seen:?}"))?;
    }
    work.end(c).await
}

/// While the partition is paused, producers go on; the history judges that nothing of what they push then is
/// delivered, not even to a pull that waited before. Once it is resumed, consumers go on.
async fn pause(c: &Context) -> CaseResult {
    let (admin, paused) = (Admin::new(c).await?, (Clause::Pause, "a pause"));
    c.client().push(&admin.p, &c.messages(BACKLOG, |_, message| message)).await?;
    let mut work = Work::begin(c, std::slice::from_ref(&admin.p), 2, Fates::Mixed).await?;
    let start = Instant::now();
    for _ in (0..CALLS).take_while(|_| start.elapsed() < ENOUGH) {
        work.goes_on(c, (Clause::Pause, "a resumption"), STEP).await?;
        let answer = bounded(c, "a pause", admin.queue.pause(&admin.p)).await?;
        c.ok(Clause::Pause, "a pause", answer)?;
        work.goes_on(c, paused, (12, 0)).await?;
        let answer = bounded(c, "a resumption", admin.queue.resume(&admin.p)).await?;
        c.ok(Clause::Pause, "a resumption", answer)?;
    }
    work.goes_on(c, (Clause::Pause, "a resumption"), STEP).await?;
    work.end(c).await
}
