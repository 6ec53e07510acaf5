//! Serving a group of requests in one transaction.
//!
//! The requests are concurrent, so any order among them is correct. Claims come last, because they can take
//! what the others push or release.

use anyqueue::{Error, Result};
use rusqlite::Connection;

use crate::claim::claim;
use crate::config::Config;
use crate::job::{Answer, Claimed, Work};
use crate::tx::{Hints, Parts, Tx};
use crate::{admin, insert, settle};

/// Why a transaction failed.
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether it failed before any request was processed, so that each request alone would fail too.
    pub(crate) at_begin: bool,
}

/// Serves all requests and commits. Returns an answer to each request, in order.
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
    tx.ready_new()?;
    for (work, answer) in works.iter().zip(&mut answers) {
        // Checked only now, because waiting for the lock may have taken long.
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
        Work::Admin(request) => {
            tx.ready_new()?; // it may be about these
            admin::act(tx, request).map(Answer::Admin)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyqueue::{Clock, MessageData, PartitionId};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::admin::{Admin, AdminAnswer};
    use crate::job::Claim;
    use crate::new_message::NewMessage;
    use crate::{SqliteQueue, connect};

    fn p() -> PartitionId {
        PartitionId::new("p").unwrap()
    }

    fn push(messages: &[MessageData]) -> Work {
        let prepare = |message| NewMessage::prepare(message, 1000, &Clock::system()).unwrap();
        Work::Push { partition: p(), messages: messages.iter().map(prepare).collect() }
    }

    fn claim_all() -> Work {
        let (lease, stop) = (Duration::from_secs(30), CancellationToken::new());
        let claim = Claim { partition: p(), max: 100, group_members: 1, lease, stop };
        Work::Settle { endings: Vec::new(), claim: Some(claim) }
    }

    /// Serves the requests and a final claim in one transaction. Returns the payloads that were claimed.
    async fn claimed(works: &[Work]) -> (Vec<Answer>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let queue = SqliteQueue::open(dir.path().join("q.db")).await.unwrap();
        let conn = connect::writer(&queue.inner.config).unwrap();
        let claim = claim_all();
        let works: Vec<&Work> = works.iter().chain([&claim]).collect();
        let ran = run(&conn, &mut Parts::default(), &queue.inner.config, &works);
        let mut answers = ran.unwrap_or_else(|failure| panic!("{}", failure.error)).0;
        let Some(Answer::Settle(_, Ok(claimed))) = answers.pop() else { panic!("not claimed") };
        let payload = |message: MessageData| String::from_utf8_lossy(message.payload()).into_owned();
        let taken = claimed.take().0.into_iter();
        (answers, taken.map(|taken| payload(taken.stored.read(&Clock::system()).message)).collect())
    }

    #[tokio::test]
    async fn what_is_stored_together_is_ready_but_for_what_waits() {
        let same = MessageData::new("d");
        let messages = [
            MessageData::new("a"),
            MessageData::new("b"),
            MessageData::new("later").with_delay(Duration::from_mins(1)),
            MessageData::new("c").with_group("g"),
            MessageData::new("behind it").with_group("g"),
            same.clone(),
            same,
            MessageData::new("first").with_priority(2),
            MessageData::new("e"),
        ];
        let (_, payloads) = claimed(&[push(&messages), push(&[MessageData::new("f")])]).await;
        assert_eq!(payloads, ["first", "a", "b", "c", "d", "e", "f"]);
    }

    #[tokio::test]
    async fn an_operator_sees_what_was_pushed_just_before() {
        let purge = || Work::Admin(Admin::Purge { partition: p(), limit: 10 });
        let two = || push(&[MessageData::new("a"), MessageData::new("b")]);
        let (answers, payloads) = claimed(&[two(), purge(), two(), two(), purge(), two()]).await;
        let purged = |answer: &Answer| match answer {
            Answer::Admin(AdminAnswer::Purged(count)) => Some(*count),
            _ => None,
        };
        assert_eq!(answers.iter().filter_map(purged).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(payloads, ["a", "b"]);
    }
}
