//! A pull that is asked to stop ends soon, loses nothing, and takes nothing afterwards.

use std::time::{Duration, Instant};

use anyqueue::SettleOutcome;
use anyqueue::adapter::Action;
use tokio_util::sync::CancellationToken;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, ids, settlement};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "cancel.stop_ends_the_wait", [DroppedPull], stop_ends_the_wait)
        .kills(&[Fault::IgnoresStop]),
    case!(Storage, "cancel.stopped_before_it_began", [DroppedPull], stopped_before_it_began)
        .kills(&[Fault::IgnoresStop]),
    case!(Storage, "cancel.stopped_eats_nothing", [DroppedPull], stopped_eats_nothing)
        .kills(&[Fault::StoppedPullLoses]),
    case!(Storage, "cancel.stop_races_push", [DroppedPull], stop_races_push)
        .kills(&[Fault::StoppedPullLoses]),
    case!(Storage, "cancel.stop_ends_an_exchange", [DroppedPull], stop_ends_an_exchange)
        .kills(&[Fault::ExchangeIgnoresStop]),
];

/// After this long, a waiter is certainly waiting, and one that can be served certainly has been.
const SETTLED_IN: Duration = Duration::from_millis(150);

/// A wait that only a stop ends in time.
fn long_wait(c: &Context) -> Duration {
    c.timing().soon * 3
}

async fn stop_ends_the_wait(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let stop = CancellationToken::new();
    let request = c.client().request(1, long_wait(c)).with_stop(stop.clone());
    let stopping = async {
        tokio::time::sleep(SETTLED_IN).await;
        stop.cancel();
        Instant::now()
    };
    let (got, stopped) = futures_util::join!(c.client().pull_with(&p, request), stopping);
    c.in_order(Clause::DroppedPull, "an empty answer", &[], &got?)?;
    c.took(
        Clause::DroppedPull,
        &[],
        "an answer to the stop",
        stopped.elapsed(),
        (Duration::ZERO, c.timing().soon),
    )
}

async fn stopped_before_it_began(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let stop = CancellationToken::new();
    stop.cancel();
    let start = Instant::now();
    let got = c.client().pull_with(&p, c.client().request(1, long_wait(c)).with_stop(stop)).await?;
    c.in_order(Clause::DroppedPull, "an empty answer", &[], &got)?;
    c.took(Clause::DroppedPull, &[], "an answer", start.elapsed(), (Duration::ZERO, c.timing().soon))
}

/// Stopped pulls take none of the messages that are pushed later.
async fn stopped_eats_nothing(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let stop = CancellationToken::new();
    let pulls = (0..5).map(|_| {
        let request = c.client().request(10, long_wait(c)).with_stop(stop.clone());
        c.client().pull_with(&p, request)
    });
    let stopping = async {
        tokio::time::sleep(SETTLED_IN).await;
        stop.cancel();
    };
    let (got, ()) = futures_util::join!(futures_util::future::join_all(pulls), stopping);
    for got in got {
        c.in_order(Clause::DroppedPull, "an empty answer", &[], &got?)?;
    }
    let sent = c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    tokio::time::sleep(SETTLED_IN).await; // whoever waits in secret takes them now
    let got = c.client().take(&p, 5).await?;
    c.same(Clause::DroppedPull, "everything that was pushed after the stop", &sent, &got)?;
    c.client().remove(&got).await
}

/// A stop and a push at the same moment: the message is in the stopped pull's answer, or there for the next
/// one.
async fn stop_races_push(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for round in 0..40_u64 {
        let stop = CancellationToken::new();
        let request = c.client().request(1, long_wait(c)).with_stop(stop.clone());
        let stopping = async {
            tokio::time::sleep(Duration::from_micros(50 * (round % 8))).await;
            stop.cancel();
        };
        let pushing = async {
            tokio::time::sleep(Duration::from_micros(50 * (7 - round % 8))).await;
            c.client().push(&p, &[c.message()]).await
        };
        let (got, sent, ()) = futures_util::join!(c.client().pull_with(&p, request), pushing, stopping);
        let (mut got, sent) = (got?, sent?);
        if got.is_empty() {
            got = c.client().pull(&p, 1).await?;
        }
        c.equal(Clause::DroppedPull, &sent, "the message, from one of the two pulls,", &sent, &ids(&got))?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// An exchange has settled, and then waits: a stop ends it.
async fn stop_ends_an_exchange(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let [held] = c.client().take_exact(&p).await?;
    let (stop, batch) = (CancellationToken::new(), [settlement(&held, Action::Remove)]);
    let request = c.client().request(1, long_wait(c)).with_stop(stop.clone());
    let stopping = async {
        tokio::time::sleep(SETTLED_IN).await;
        stop.cancel();
        Instant::now()
    };
    let ((settled, pulled), stopped) =
        futures_util::join!(c.client().storage().exchange(&batch, &p, request), stopping);
    let settled = c.ok(
        Clause::SettleOutcomes,
        "the settlement",
        settled.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
    )?;
    c.equal(Clause::SettleOutcomes, &sent, "the outcome", &vec![SettleOutcome::Settled], &settled)?;
    let got = c.ok(Clause::ReadyAtOnce, "the pull", pulled)?;
    c.in_order(Clause::DroppedPull, "an empty answer", &[], &got)?;
    c.took(
        Clause::DroppedPull,
        &[],
        "an answer to the stop",
        stopped.elapsed(),
        (Duration::ZERO, c.timing().soon),
    )
}
