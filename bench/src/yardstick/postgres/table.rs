//! The statements, on one connection.

use std::str::FromStr;

use anyqueue::{Bytes, MessageId};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Postgres, Row};
use uuid::Uuid;

use super::delivery::{Proof, RawDelivery};
use crate::client::{LEASE, Result};

/// Ready messages and leased ones have an index each. The index of ids keeps room for the entries that claims
/// add.
const SCHEMA: &str = "
    CREATE SCHEMA IF NOT EXISTS {schema};
    CREATE TABLE IF NOT EXISTS {schema}.message (
        id uuid PRIMARY KEY WITH (fillfactor = 50),
        ord bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
        until timestamptz,
        token uuid,
        deliveries integer NOT NULL DEFAULT 0,
        priority smallint NOT NULL,
        state smallint NOT NULL DEFAULT 0,
        payload bytea NOT NULL
    ) WITH (fillfactor = 60, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.01,
            autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_limit = 2000, vacuum_truncate = false);
    CREATE INDEX IF NOT EXISTS message_ready ON {schema}.message (priority DESC, ord) WHERE state = 0;
    CREATE INDEX IF NOT EXISTS message_leased ON {schema}.message (until) WHERE state = 1;
";
const PUSH: &str = "INSERT INTO message (id, priority, payload)
    SELECT id, priority, payload FROM unnest($1::uuid[], $2::smallint[], $3::bytea[]) AS m(id, priority, payload)";
const CLAIM: &str = "WITH c AS MATERIALIZED (
        SELECT ctid FROM message WHERE state = 0 ORDER BY priority DESC, ord LIMIT $1 FOR UPDATE SKIP LOCKED)
    UPDATE message m SET state = 1, deliveries = deliveries + 1, until = now() + make_interval(secs => $2), token = $3
    FROM c WHERE m.ctid = c.ctid RETURNING m.priority, m.ord, m.id, m.deliveries, m.payload, m.ctid";
const SETTLE: &str = "DELETE FROM message m USING unnest($1, $2::uuid[], $3::uuid[]) AS s(place, id, token)
    WHERE m.ctid = s.place AND m.id = s.id AND m.token = s.token RETURNING m.id";
const SETTLE_THEN: &str = "WITH gone AS (
        DELETE FROM message m USING unnest($1, $2::uuid[], $3::uuid[]) AS s(place, id, token)
        WHERE m.ctid = s.place AND m.id = s.id AND m.token = s.token RETURNING m.id),
    stored AS (
        INSERT INTO message (id, priority, payload)
        SELECT f.id, 0, f.payload FROM unnest($2::uuid[], $4::uuid[], $5::bytea[]) AS f(parent, id, payload)
        WHERE f.parent IN (SELECT id FROM gone))
    SELECT id FROM gone";
const EXCHANGE: &str = "WITH gone AS (
        DELETE FROM message m USING unnest($4, $5::uuid[], $6::uuid[]) AS s(place, id, token)
        WHERE m.ctid = s.place AND m.id = s.id AND m.token = s.token RETURNING m.id),
    c AS MATERIALIZED (
        SELECT ctid FROM message WHERE state = 0 ORDER BY priority DESC, ord LIMIT $1 FOR UPDATE SKIP LOCKED),
    taken AS (
        UPDATE message m SET state = 1, deliveries = deliveries + 1, until = now() + make_interval(secs => $2), token = $3
        FROM c WHERE m.ctid = c.ctid RETURNING m.priority, m.ord, m.id, m.deliveries, m.payload, m.ctid)
    SELECT priority, ord, id, deliveries, payload, ctid, NULL FROM taken
    UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, array_agg(id) FROM gone";
const REAP: &str =
    "UPDATE message SET state = 0, token = NULL, until = NULL WHERE state = 1 AND until < now()";

/// A connection with its statements, which are prepared on first use.
pub(super) struct Table(PgConnection);

impl Table {
    /// Plans are made once, and do not depend on what the table happens to hold at that time.
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let options = PgConnectOptions::from_str(base(url))?.disable_statement_logging().options([
            ("search_path", schema(url)),
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
            ("enable_bitmapscan", "off"),
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
            ("jit", "off"),
        ]);
        Ok(Self(options.connect().await?))
    }

    pub(super) async fn prepare(&mut self, url: &str) -> Result<()> {
        self.raw(SCHEMA.replace("{schema}", schema(url))).await
    }

    pub(super) async fn drop_schema(&mut self, url: &str) -> Result<()> {
        self.raw(format!("DROP SCHEMA IF EXISTS {} CASCADE", schema(url))).await
    }

    pub(super) async fn checkpoint(&mut self) -> Result<()> {
        self.raw("CHECKPOINT".to_owned()).await
    }

    async fn raw(&mut self, sql: String) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.0).await?;
        Ok(())
    }

    pub(super) async fn push(&mut self, rows: impl Iterator<Item = (MessageId, Bytes)>) -> Result<()> {
        let (ids, payloads): (Vec<_>, Vec<_>) =
            rows.map(|(id, payload)| (Uuid::from_bytes(*id.as_bytes()), Vec::from(payload))).unzip();
        let priorities = vec![0_i16; ids.len()];
        sqlx::query(PUSH).bind(ids).bind(priorities).bind(payloads).execute(&mut self.0).await?;
        Ok(())
    }

    pub(super) async fn claim(&mut self, max: usize) -> Result<Vec<RawDelivery>> {
        let token = Uuid::new_v4();
        let query = sqlx::query(CLAIM).bind(i64::try_from(max)?).bind(LEASE.as_secs_f64()).bind(token);
        deliveries(query.fetch_all(&mut self.0).await?.iter(), token)
    }

    /// Removes messages that were held under their tokens, and returns their ids.
    pub(super) async fn settle(&mut self, proofs: &[Proof]) -> Result<Vec<Uuid>> {
        let rows = bind(sqlx::query(SETTLE), proofs).fetch_all(&mut self.0).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Settles, and stores a message for each one that was held.
    pub(super) async fn settle_then(
        &mut self,
        proofs: &[Proof],
        followers: impl Iterator<Item = (MessageId, Bytes)>,
    ) -> Result<Vec<Uuid>> {
        let (ids, payloads): (Vec<_>, Vec<_>) =
            followers.map(|(id, payload)| (Uuid::from_bytes(*id.as_bytes()), Vec::from(payload))).unzip();
        let query = bind(sqlx::query(SETTLE_THEN), proofs).bind(ids).bind(payloads);
        let rows = query.fetch_all(&mut self.0).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Settles and claims.
    pub(super) async fn exchange(
        &mut self,
        proofs: &[Proof],
        max: usize,
    ) -> Result<(Vec<Uuid>, Vec<RawDelivery>)> {
        let token = Uuid::new_v4();
        let query = sqlx::query(EXCHANGE).bind(i64::try_from(max)?).bind(LEASE.as_secs_f64()).bind(token);
        let rows = bind(query, proofs).fetch_all(&mut self.0).await?;
        let (mut gone, mut claimed) = (Vec::new(), Vec::new());
        for row in &rows {
            match row.try_get::<Option<i64>, _>(1)? {
                Some(_) => claimed.push(row),
                None => gone = row.try_get::<Option<_>, _>(6)?.unwrap_or_default(),
            }
        }
        Ok((gone, deliveries(claimed.into_iter(), token)?))
    }

    pub(super) async fn reap(&mut self) -> Result<()> {
        sqlx::query(REAP).execute(&mut self.0).await?;
        Ok(())
    }

    pub(super) async fn count(&mut self) -> Result<u64> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM message").fetch_one(&mut self.0).await?;
        Ok(u64::try_from(count)?)
    }

    /// Notifies other processes, in a transaction that does not wait for a disk.
    pub(super) async fn notify(&mut self, url: &str) -> Result<()> {
        let notify = "SELECT pg_notify($1, ''), set_config('synchronous_commit', 'off', true)";
        sqlx::query(notify).bind(schema(url)).execute(&mut self.0).await?;
        Ok(())
    }

    pub(super) async fn close(self) -> Result<()> {
        Ok(self.0.close().await?)
    }
}

type Query = sqlx::query::Query<'static, Postgres, PgArguments>;

fn bind(query: Query, proofs: &[Proof]) -> Query {
    let each = |proof: &Proof| (proof.place, proof.id, proof.token);
    let (places, ids, tokens): (Vec<_>, Vec<_>, Vec<_>) = proofs.iter().map(each).collect();
    query.bind(places).bind(ids).bind(tokens)
}

/// Sorts the deliveries, because RETURNING promises no order.
fn deliveries<'r>(rows: impl Iterator<Item = &'r PgRow>, token: Uuid) -> Result<Vec<RawDelivery>> {
    let mut sorted = Vec::new();
    for row in rows {
        let payload = Bytes::copy_from_slice(row.try_get::<&[u8], _>(4)?);
        let proof = Proof { place: row.try_get(5)?, id: row.try_get(2)?, token };
        let delivery = RawDelivery { proof, payload, _deliveries: row.try_get(3)? };
        sorted.push((-row.try_get::<i16, _>(0)?, row.try_get::<i64, _>(1)?, delivery));
    }
    sorted.sort_unstable_by_key(|(priority, ord, _)| (*priority, *ord));
    Ok(sorted.into_iter().map(|(_, _, delivery)| delivery).collect())
}

/// Returns the URL of the database.
pub(super) fn base(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

/// Returns the schema that the URL names, which is also the channel of its notifications.
pub(super) fn schema(url: &str) -> &str {
    url.rsplit("schema=").next().unwrap_or("public")
}
