//! Ends that are recorded where one was whose time is over.

use std::time::Duration;

use anyqueue::MessageId;

use super::{LONG, Ledger, NEEDS, end_one, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Context};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] =
    &[case!(Storage, "ledger.recorded_over_lapsed", [EndsMerge, EndedTold], recorded_over_lapsed)
        .needs(NEEDS)
        .kills(&[Fault::LapsedOutranks])];

const BRIEF: Duration = Duration::from_millis(50);

/// What is told no more outranks nothing, whether its place has been freed or not.
async fn recorded_over_lapsed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let settled = end_one(c, &p, &numbered(8).with_keep(Some(BRIEF))).await?;
    let recorded = MessageId::new();
    ledger.record(&[(recorded, numbered(9).with_keep(Some(BRIEF)))]).await?;
    tokio::time::sleep(BRIEF + CLOCK_GRAIN).await;
    let new = [(settled, numbered(2).with_keep(LONG)), (recorded, numbered(3).with_keep(LONG))];
    ledger.record(&new).await?;
    ledger.has(Clause::EndsMerge, &new).await?;
    // Of those that are told the greatest is left, as ever.
    ledger.record(&[(settled, numbered(1)), (recorded, numbered(1))]).await?;
    ledger.has(Clause::EndsMerge, &new).await
}
