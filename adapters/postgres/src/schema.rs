//! The queue's schema: created and upgraded by migrations, which are recorded in a table.

use std::time::{Duration, SystemTime};

use anyqueue::{ErrorKind, Result};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::error::{ERRORS, classify};
use crate::pool::Pool;
use crate::sql::Schema;

/// All migrations of this release, oldest first. The version is the position, from 1. Never change one that
/// was released.
const MIGRATIONS: &[(&str, &[&str])] = &[
    (
        "queue",
        &[
            include_str!("../migrations/0001_queue/1_tables.sql"),
            include_str!("../migrations/0001_queue/2_common.sql"),
            include_str!("../migrations/0001_queue/3_push.sql"),
            include_str!("../migrations/0001_queue/4_pull.sql"),
            include_str!("../migrations/0001_queue/5_settle.sql"),
            include_str!("../migrations/0001_queue/6_admin.sql"),
        ],
    ),
    (
        "successors and compaction",
        &[
            include_str!("../migrations/0002_successors_and_compaction/1_compaction.sql"),
            include_str!("../migrations/0002_successors_and_compaction/2_successors.sql"),
        ],
    ),
    (
        "amendments",
        &[
            include_str!("../migrations/0003_amendments/1_columns.sql"),
            include_str!("../migrations/0003_amendments/2_time.sql"),
            include_str!("../migrations/0003_amendments/3_pull.sql"),
            include_str!("../migrations/0003_amendments/4_settle.sql"),
            include_str!("../migrations/0003_amendments/5_push.sql"),
            include_str!("../migrations/0003_amendments/6_successors.sql"),
            include_str!("../migrations/0003_amendments/7_admin.sql"),
            include_str!("../migrations/0003_amendments/8_amend.sql"),
        ],
    ),
    (
        "ends",
        &[
            include_str!("../migrations/0004_ends/1_tables.sql"),
            include_str!("../migrations/0004_ends/2_store.sql"),
            include_str!("../migrations/0004_ends/3_read.sql"),
            include_str!("../migrations/0004_ends/4_remove.sql"),
        ],
    ),
    (
        "control",
        &[
            include_str!("../migrations/0005_control/1_table.sql"),
            include_str!("../migrations/0005_control/2_read.sql"),
            include_str!("../migrations/0005_control/3_apply.sql"),
        ],
    ),
    (
        "series",
        &[
            include_str!("../migrations/0006_series/1_table.sql"),
            include_str!("../migrations/0006_series/2_count.sql"),
        ],
    ),
    ("members due", &[include_str!("../migrations/0007_members_due/1_advance.sql")]),
    (
        "at once",
        &[
            include_str!("../migrations/0008_at_once/1_pull.sql"),
            include_str!("../migrations/0008_at_once/2_push.sql"),
            include_str!("../migrations/0008_at_once/3_locks.sql"),
            include_str!("../migrations/0008_at_once/4_admin.sql"),
            include_str!("../migrations/0008_at_once/5_amend.sql"),
            include_str!("../migrations/0008_at_once/6_ends.sql"),
        ],
    ),
];

const MIGRATION_TABLE: &str = "CREATE TABLE IF NOT EXISTS {schema}.migration (
    version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())";
const ENTRY: &str = "INSERT INTO {schema}.migration (version, name) VALUES ($1, $2)";
const NEWEST: &str = "SELECT coalesce(max(version), 0) FROM {schema}.migration";
/// Distinguishes the lock of migrations from the locks of other programs.
const LOCK_CLASS: i32 = 0x616e_7971;
/// The oldest supported server.
const MIN_SERVER: i32 = 130_000;

fn newest() -> i32 {
    i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX)
}

/// Upgrades the schema to this release, in one transaction under a lock. Many processes may do so at the same
/// time.
pub(crate) async fn migrate(pool: &Pool, schema: &Schema) -> Result<()> {
    if applied(pool, schema).await? == Some(newest()) {
        return Ok(()); // the usual case takes no lock and needs no permission to create
    }
    let migrated =
        pool.acquire().await?.run(async |conn: &mut PgConnection| migrate_alone(conn, schema).await).await?;
    refuse_newer(migrated)
}

/// Upgrades the schema under the lock, and returns its version. A newer schema stays as it is.
async fn migrate_alone(conn: &mut PgConnection, schema: &Schema) -> Result<i32, sqlx::Error> {
    let mut tx = conn.begin().await?;
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1, hashtext($2))").persistent(false);
    lock.bind(LOCK_CLASS).bind(schema.name()).execute(&mut *tx).await?;
    let exists = sqlx::query("SELECT to_regnamespace($1) IS NOT NULL").persistent(false).bind(schema.name());
    if !exists.fetch_one(&mut *tx).await?.try_get::<bool, _>(0)? {
        sqlx::raw_sql(schema.text("CREATE SCHEMA {schema}").safe()).execute(&mut *tx).await?;
    }
    sqlx::raw_sql(schema.text(MIGRATION_TABLE).safe()).execute(&mut *tx).await?;
    let done = schema.text(NEWEST).query().persistent(false).fetch_one(&mut *tx).await?.try_get(0)?;
    if done > newest() {
        return Ok(done);
    }
    // The functions keep this path. Temporary tables are last in it, so that none can stand in for a table.
    sqlx::raw_sql(schema.text("SET LOCAL search_path = {schema}, pg_temp").safe()).execute(&mut *tx).await?;
    for (version, (name, scripts)) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        for script in *scripts {
            sqlx::raw_sql(AssertSqlSafe(*script)).execute(&mut *tx).await?;
        }
        schema.text(ENTRY).query().persistent(false).bind(version).bind(*name).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(newest())
}

/// Drops the schema with everything in it.
pub(crate) async fn remove(pool: &Pool, schema: &Schema) -> Result<()> {
    let drop_all = async |conn: &mut PgConnection| {
        sqlx::raw_sql(schema.text("DROP SCHEMA IF EXISTS {schema} CASCADE").safe())
            .execute(conn)
            .await
            .map(drop)
    };
    pool.acquire().await?.run(drop_all).await
}

/// Checks that the schema is of this release, and creates nothing.
pub(crate) async fn check(pool: &Pool, schema: &Schema) -> Result<()> {
    match applied(pool, schema).await? {
        Some(version) if version == newest() => Ok(()),
        Some(version) => {
            refuse_newer(version)?;
            let text =
                format!("schema {} is of an older release: open it once with create=true", schema.name());
            Err(ERRORS.error(ErrorKind::Incompatible, text))
        }
        None => {
            let text =
                format!("there is no queue in schema {}: open it once with create=true", schema.name());
            Err(ERRORS.error(ErrorKind::Incompatible, text))
        }
    }
}

/// Returns the server's version, if it is supported.
pub(crate) async fn server_version(pool: &Pool) -> Result<String> {
    let text = "SELECT current_setting('server_version'), current_setting('server_version_num')::integer";
    let rows = pool.fetch(sqlx::query(text)).await?;
    let row: &PgRow = rows
        .first()
        .ok_or_else(|| ERRORS.error(ErrorKind::Incompatible, "the server does not tell its version"))?;
    let (version, number): (String, i32) =
        (row.try_get(0).map_err(classify)?, row.try_get(1).map_err(classify)?);
    refuse_older(number, &version)?;
    Ok(version)
}

/// Returns the time of the server's clock.
pub(crate) async fn server_time(pool: &Pool) -> Result<Option<SystemTime>> {
    let text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let rows = pool.fetch(sqlx::query(text)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let since_1970_us: i64 = row.try_get(0).map_err(classify)?;
    Ok(u64::try_from(since_1970_us).ok().map(|us| SystemTime::UNIX_EPOCH + Duration::from_micros(us)))
}

fn refuse_older(number: i32, version: &str) -> Result<()> {
    if number >= MIN_SERVER {
        return Ok(());
    }
    let needed = MIN_SERVER / 10_000;
    let text = format!("the server is PostgreSQL {version}: this release needs {needed} or newer");
    Err(ERRORS.error(ErrorKind::Incompatible, text))
}

/// Returns the newest migration in the schema, or `None` if none was recorded.
async fn applied(pool: &Pool, schema: &Schema) -> Result<Option<i32>> {
    let migration_table = format!("{}.migration", schema.name());
    let exists = pool.fetch(sqlx::query("SELECT to_regclass($1) IS NOT NULL").bind(migration_table)).await?;
    if !exists.first().map_or(Ok(false), |row| row.try_get(0)).map_err(classify)? {
        return Ok(None);
    }
    let rows = pool.fetch(schema.text(NEWEST).query()).await?;
    rows.first().map(|row| row.try_get(0)).transpose().map_err(classify)
}

fn refuse_newer(version: i32) -> Result<()> {
    if version <= newest() {
        return Ok(());
    }
    Err(ERRORS.error(
        ErrorKind::Incompatible,
        format!(
            "the schema was created by a newer release (version {version}; this one knows up to {}): upgrade anyqueue-postgres",
            newest()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_refused_with_both_versions() {
        assert!(refuse_older(130_000, "13.0").is_ok());
        let error = refuse_older(120_022, "12.22").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.message().contains("12.22") && error.message().contains("13"), "{error}");
    }
}
