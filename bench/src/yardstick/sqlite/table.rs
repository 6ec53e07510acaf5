//! The statements.

use std::time::{SystemTime, UNIX_EPOCH};

use anyqueue::{Bytes, MessageId};
use rusqlite::{Connection, Statement, params};

use super::delivery::RawDelivery;
use crate::client::{LEASE, Result};

/// `until` is 0 for a ready message, and the lease's end in Unix milliseconds for a held one, so that one
/// index serves the claim (`until = 0`, in order) and the search for ended leases (`until` between 1 and
/// now).
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA busy_timeout = 5000;
    PRAGMA temp_store = MEMORY;
    CREATE TABLE IF NOT EXISTS message (
        place INTEGER PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        priority INTEGER NOT NULL,
        until INTEGER NOT NULL DEFAULT 0,
        token BLOB,
        deliveries INTEGER NOT NULL DEFAULT 0,
        payload BLOB NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS message_turn ON message (until, priority DESC, place);
";

pub(super) struct Table<'c> {
    connection: &'c Connection,
    durable: bool,
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    insert: Statement<'c>,
    claim: Statement<'c>,
    settle: Statement<'c>,
    reap: Statement<'c>,
    count: Statement<'c>,
    data_version: Statement<'c>,
}

impl<'c> Table<'c> {
    pub(super) fn connect(path: &str) -> Result<Connection> {
        let connection = Connection::open(path)?;
        connection.execute_batch(SCHEMA)?;
        Ok(connection)
    }

    pub(super) fn prepare(connection: &'c Connection) -> Result<Self> {
        Ok(Self {
            connection,
            durable: true,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            insert: connection.prepare("INSERT INTO message (id, priority, payload) VALUES (?1, ?2, ?3)")?,
            claim: connection.prepare(
                "UPDATE message SET until = ?1, token = ?2, deliveries = deliveries + 1
                 WHERE place IN (SELECT place FROM message WHERE until = 0 ORDER BY priority DESC, place LIMIT ?3)
                 RETURNING place, id, deliveries, payload, priority",
            )?,
            settle: connection.prepare("DELETE FROM message WHERE place = ?1 AND token = ?2")?,
            reap: connection
                .prepare("UPDATE message SET until = 0, token = NULL WHERE until BETWEEN 1 AND ?1")?,
            count: connection.prepare("SELECT count(*) FROM message")?,
            data_version: connection.prepare("PRAGMA data_version")?,
        })
    }

    /// A transaction that is not durable is still atomic, and becomes durable with the next one that is.
    pub(super) fn begin(&mut self, durable: bool) -> Result<()> {
        if durable != self.durable {
            // Not prepared beforehand: this pragma takes effect when it is compiled, not when it is run.
            let level = if durable { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.connection.execute_batch(level)?;
            self.durable = durable;
        }
        self.begin.raw_execute()?;
        Ok(())
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        self.commit.raw_execute()?;
        Ok(())
    }

    pub(super) fn rollback(&mut self) -> Result<()> {
        self.rollback.raw_execute()?;
        Ok(())
    }

    pub(super) fn insert(&mut self, rows: &[(MessageId, Bytes)]) -> Result<()> {
        for (id, payload) in rows {
            self.insert.execute(params![id.as_bytes().as_slice(), 0, payload.as_ref()])?;
        }
        Ok(())
    }

    pub(super) fn claim(&mut self, max: usize) -> Result<Vec<RawDelivery>> {
        let token = fastrand::u128(..).to_be_bytes();
        let until = now_ms()? + i64::try_from(LEASE.as_millis())?;
        let rows = self.claim.query_map(params![until, token, i64::try_from(max)?], |row| {
            let delivery = RawDelivery {
                place: row.get(0)?,
                id: MessageId::from_bytes(row.get(1)?),
                token,
                _deliveries: row.get(2)?,
                payload: Bytes::copy_from_slice(row.get_ref(3)?.as_blob()?),
            };
            Ok((row.get::<_, u8>(4)?, delivery))
        })?;
        let mut claimed = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        // RETURNING promises no order.
        claimed.sort_unstable_by_key(|(priority, delivery)| (u8::MAX - priority, delivery.place));
        Ok(claimed.into_iter().map(|(_, delivery)| delivery).collect())
    }

    /// Returns how many of these were still held under their tokens, and are gone now.
    pub(super) fn settle(&mut self, rows: &[(i64, [u8; 16])]) -> Result<usize> {
        let mut settled = 0;
        for (place, token) in rows {
            settled += self.settle.execute(params![place, token])?;
        }
        Ok(settled)
    }

    pub(super) fn reap(&mut self) -> Result<usize> {
        Ok(self.reap.execute([now_ms()?])?)
    }

    pub(super) fn count(&mut self) -> Result<u64> {
        Ok(u64::try_from(self.count.query_row([], |row| row.get::<_, i64>(0))?)?)
    }

    /// Returns a number that changes when another connection has committed.
    pub(super) fn data_version(&mut self) -> Result<i64> {
        Ok(self.data_version.query_row([], |row| row.get(0))?)
    }
}

fn now_ms() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}
