//! What one transaction does for a group of requests: everything of one kind together, in few statements.
//!
//! The requests are concurrent, so any order among them is right. Settlements come first because they make room for
//! others of a group, claims after pushes because they may take what was just pushed.

use anyqueue::{Action, Clock, Error, ErrorKind, PartitionId, Result};
use sqlx::SqliteConnection;

use crate::claim::{Claimed, claim};
use crate::error::own;
use crate::settle::{self, Asked, Leases};
use crate::tx::{Begun, Hints, Now, Parts, Tx};
use crate::writer::{Answer, Work};
use crate::{admin, due, push};

/// Does everything and commits. Answers each request, in order.
pub(crate) async fn run(
    conn: &mut SqliteConnection,
    parts: &mut Parts,
    clock: &Clock,
    works: &[&Work],
    careful: bool,
) -> Result<(Vec<Answer>, Hints), Failure> {
    let asked = asked(works);
    let question = asked.question(Now::of(clock));
    let answered = question.is_some();
    let partitions = works.iter().filter_map(|work| partition(work));
    let begun = Tx::begin(conn, parts, clock, partitions, question).await;
    let Begun { mut tx, brought, answer } = begun.map_err(|error| Failure { error, at_begin: true })?;
    let answer = answered.then_some(answer.as_slice());
    let done = async {
        bring_others(&mut tx, works, &brought).await?;
        let mut answers: Vec<Option<Answer>> = works.iter().map(|_| None).collect();
        let mut leases = Leases::load(&mut tx, &asked, answer).await?;
        settle_all(&mut tx, works, &mut leases, &mut answers).await?;
        push_all(&mut tx, works, careful, &mut answers).await?;
        claim_all(&mut tx, works, &mut answers).await?;
        administer(&mut tx, works, &mut answers).await?;
        let missing = || own(ErrorKind::Internal, "a request got no answer");
        let answers = answers.into_iter().map(|answer| answer.ok_or_else(missing)).collect::<Result<_>>()?;
        Ok((answers, tx.commit().await?))
    };
    done.await.map_err(|error| Failure { error, at_begin: false })
}

/// Why a transaction came to nothing.
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether it failed before any request was looked at, so that each alone would fail too.
    pub(crate) at_begin: bool,
}

fn asked<'w>(works: &[&'w Work]) -> Asked<'w> {
    let mut asked = Asked::default();
    for work in works {
        match work {
            Work::Settle { settlements, .. } => {
                for one in settlements {
                    asked.ask(&one.lease, one.action != Action::Remove);
                }
            }
            Work::Extend(extensions) => {
                for one in extensions {
                    asked.ask(&one.lease, false);
                }
            }
            Work::Push { .. } | Work::Admin(_) => {}
        }
    }
    asked
}

/// Brings what is due in partitions that were not known when the transaction began.
async fn bring_others(tx: &mut Tx<'_>, works: &[&Work], brought: &[i64]) -> Result<()> {
    let mut parts = Vec::new();
    for partition in works.iter().filter_map(|work| partition(work)) {
        parts.extend(tx.find(partition).await?.filter(|part| !brought.contains(part)));
    }
    parts.sort_unstable();
    parts.dedup();
    due::bring(tx, &parts).await
}

async fn administer(tx: &mut Tx<'_>, works: &[&Work], answers: &mut [Option<Answer>]) -> Result<()> {
    for (work, answer) in works.iter().zip(answers) {
        if let Work::Admin(request) = work {
            *answer = Some(Answer::Admin(admin::act(tx, request).await?));
        }
    }
    Ok(())
}

/// The partition in which it matters to a request what is due.
fn partition(work: &Work) -> Option<&PartitionId> {
    match work {
        Work::Push { partition, .. } => Some(partition),
        Work::Settle { claim: Some(claim), .. } => Some(&claim.partition),
        Work::Admin(request) => Some(request.partition()),
        Work::Settle { .. } | Work::Extend(_) => None,
    }
}

async fn settle_all(
    tx: &mut Tx<'_>,
    works: &[&Work],
    leases: &mut Leases,
    answers: &mut [Option<Answer>],
) -> Result<()> {
    for (work, answer) in works.iter().zip(&mut *answers) {
        if let Work::Settle { settlements, .. } = work {
            let outcomes = settle::settle(tx, leases, settlements).await?;
            *answer = Some(Answer::Settle(outcomes, Claimed::default()));
        }
    }
    for (work, answer) in works.iter().zip(answers) {
        if let Work::Extend(extensions) = work {
            *answer = Some(Answer::Extend(settle::extend(tx, leases, extensions)));
        }
    }
    tx.flush().await
}

async fn push_all(
    tx: &mut Tx<'_>,
    works: &[&Work],
    careful: bool,
    answers: &mut [Option<Answer>],
) -> Result<()> {
    let mut messages = Vec::new();
    for work in works {
        if let Work::Push { partition, messages: pushed } = work {
            let part = tx.make_used(partition).await?;
            messages.extend(pushed.iter().map(|message| (part, message)));
        }
    }
    let mut outcomes = push::store(tx, &messages, careful).await?.into_iter();
    for (work, answer) in works.iter().zip(answers) {
        if let Work::Push { messages, .. } = work {
            *answer = Some(Answer::Push(outcomes.by_ref().take(messages.len()).collect()));
        }
    }
    Ok(())
}

async fn claim_all(tx: &mut Tx<'_>, works: &[&Work], answers: &mut [Option<Answer>]) -> Result<()> {
    let wanted = works.iter().enumerate().filter_map(|(slot, work)| match work {
        Work::Settle { claim: Some(claim), .. } => Some((slot, claim)),
        _ => None,
    });
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let last = !works.iter().any(|work| matches!(work, Work::Admin(_)));
    for (slot, got) in claim(tx, &wanted, last).await? {
        if let Some(Some(Answer::Settle(_, claimed))) = answers.get_mut(slot) {
            *claimed = got;
        }
    }
    Ok(())
}
