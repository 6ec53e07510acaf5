//! What one transaction does for a group of requests.
//!
//! The requests are concurrent, so any order among them is right. Claims come last because they may take what the others
//! push or release.

use anyqueue::{Error, Result};
use rusqlite::Connection;

use crate::claim::claim;
use crate::config::Config;
use crate::job::{Answer, Claimed, Work};
use crate::tx::{Hints, Parts, Tx};
use crate::{admin, insert, settle};

/// Why a transaction came to nothing.
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether it failed before any request was looked at, so that each alone would fail too.
    pub(crate) at_begin: bool,
}

/// Does everything and commits. Answers each request, in order.
pub(crate) fn run(
    conn: &Connection,
    parts: &mut Parts,
    config: &Config,
    works: &[&Work],
) -> Result<(Vec<Answer>, Hints), Failure> {
    let tx = Tx::begin(conn, parts, &config.clock, config.steady.as_ref())
        .map_err(|error| Failure { error, at_begin: true })?;
    serve(tx, works).map_err(|error| Failure { error, at_begin: false })
}

fn serve(mut tx: Tx<'_>, works: &[&Work]) -> Result<(Vec<Answer>, Hints)> {
    let mut answers = works.iter().map(|work| answer(&mut tx, work)).collect::<Result<Vec<_>>>()?;
    for (work, answer) in works.iter().zip(&mut answers) {
        // Asked only now, for it may have been a long wait for the lock.
        if let (Work::Settle { claim: Some(wanted), .. }, Answer::Settle(_, claimed)) = (work, answer)
            && !wanted.stop.is_cancelled()
        {
            *claimed = Ok(claim(&mut tx, wanted)?);
        }
    }
    Ok((answers, tx.commit()?))
}

fn answer(tx: &mut Tx<'_>, work: &Work) -> Result<Answer> {
    match work {
        Work::Push { partition, messages } => {
            let part = tx.make(partition)?;
            tx.bring(part)?;
            insert::store_all(tx, part, messages).map(Answer::Push)
        }
        Work::Settle { endings, .. } => {
            let outcomes = endings.iter().map(|ending| settle::settle(tx, ending));
            Ok(Answer::Settle(outcomes.collect::<Result<_>>()?, Ok(Claimed::default())))
        }
        Work::Extend(extensions) => {
            let outcomes = extensions.iter().map(|extension| settle::extend(tx, extension));
            outcomes.collect::<Result<_>>().map(Answer::Extend)
        }
        Work::Admin(request) => admin::act(tx, request).map(Answer::Admin),
    }
}
