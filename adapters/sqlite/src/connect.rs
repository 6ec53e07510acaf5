//! Connections to the file: one that writes, and a few that read.

use std::time::{Duration, Instant};

use anyqueue::{ErrorKind, Result};
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use crate::config::{Config, Synchronous};
use crate::error::{ERRORS, NO_RIGHT, classify, classify_open};

/// How many compiled statements are kept per connection: more than there are.
const STATEMENTS: usize = 128;
/// Space beyond `max_bytes` that is used to take messages *out* of a full file.
const RESERVE_BYTES: u64 = 1024 * 1024;

fn open(config: &Config, flags: OpenFlags) -> Result<Connection> {
    // Not as a URI, since a file may be named file:x.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | flags;
    let open = || {
        let opened = Connection::open_with_flags(&config.path, flags).and_then(|conn| {
            conn.busy_timeout(config.busy_timeout)?;
            conn.set_prepared_statement_cache_capacity(STATEMENTS);
            Ok(conn)
        });
        opened.map_err(|error| classify_open(error, &config.path))
    };
    config.identity.open(&config.path, open)
}

/// Opens a connection that writes, creating the file if allowed, in WAL mode.
pub(crate) fn writer(config: &Config) -> Result<Connection> {
    let create = if config.create { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let conn = open(config, create)?;
    write_ahead(&conn, config)?;
    flush_commits(&conn, config.synchronous == Synchronous::Full)?;
    let encoding: String = pragma(&conn, "encoding")?;
    if encoding != "UTF-8" {
        let text = format!("the file stores text as {encoding}: a queue needs a file in UTF-8");
        return Err(ERRORS.error(ErrorKind::Incompatible, text));
    }
    limit_size(&conn, config, false)?;
    Ok(conn)
}

/// Opens a connection that only reads.
pub(crate) fn reader(config: &Config) -> Result<Connection> {
    let conn = open(config, OpenFlags::empty())?;
    conn.pragma_update(None, "query_only", true).map_err(classify)?;
    Ok(conn)
}

/// Sets whether commits are flushed, from the next transaction on. This must not be a cached statement,
/// because SQLite obeys the pragma when the statement is compiled, which happens only once for a cached one.
/// SQLite ignores a value that it cannot obey, so the setting is read back.
pub(crate) fn flush_commits(conn: &Connection, flush: bool) -> Result<()> {
    let level = if flush { "FULL" } else { "NORMAL" };
    conn.pragma_update(None, "synchronous", level).map_err(classify)?;
    if flush && !survives_power_loss(conn)? {
        return Err(ERRORS.error(ErrorKind::Internal, "SQLite did not accept synchronous=FULL"));
    }
    Ok(())
}

/// Whether a commit waits for the disk, as SQLite itself says.
pub(crate) fn survives_power_loss(conn: &Connection) -> Result<bool> {
    Ok(pragma::<i64>(conn, "synchronous")? >= 2)
}

/// Turns the write-ahead log on. The switch needs exclusive access to the file, and SQLite does not wait for
/// that by itself. Since many processes may open a new file at once, it is repeated until the busy timeout is
/// over.
fn write_ahead(conn: &Connection, config: &Config) -> Result<()> {
    let deadline = Instant::now() + config.busy_timeout;
    loop {
        let switched =
            conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match switched {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => {
                return Err(ERRORS.error(
                    ErrorKind::Incompatible,
                    format!(
                        "the file stays in journal mode {mode:?}: a queue needs WAL, which network file systems do not offer"
                    ),
                ));
            }
            Err(error) => {
                let error = classify_open(error, &config.path);
                if error.kind() != ErrorKind::Unavailable || Instant::now() >= deadline {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Sets the largest size of the file on this connection. With `reserve`, it is a little larger.
pub(crate) fn limit_size(conn: &Connection, config: &Config, reserve: bool) -> Result<()> {
    let Some(max_bytes) = config.max_bytes else { return Ok(()) };
    let page_bytes = pragma::<i64>(conn, "page_size")?.max(512);
    let bytes = if reserve { max_bytes.saturating_add(RESERVE_BYTES) } else { max_bytes };
    let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page_bytes;
    let limit = pages.min(u32::MAX.into());
    conn.pragma_update_and_check(None, "max_page_count", limit, |_| Ok(())).map_err(classify)
}

/// Returns how many bytes within the file are free for new rows.
pub(crate) fn free_bytes(conn: &Connection) -> Result<u64> {
    let (pages, page_bytes) = (pragma::<i64>(conn, "freelist_count")?, pragma::<i64>(conn, "page_size")?);
    Ok(pages.saturating_mul(page_bytes).unsigned_abs())
}

/// Checks that the file can be written. If it cannot, SQLite opens it nevertheless, and transactions only
/// read.
pub(crate) fn check_writable(conn: &Connection) -> Result<()> {
    if conn.is_readonly(MAIN_DB).map_err(classify)? {
        return Err(ERRORS.error(ErrorKind::AccessDenied, NO_RIGHT));
    }
    Ok(())
}

/// Returns the number of pages in the file, of free pages among them, and of bytes in a page.
pub(crate) fn pages(conn: &Connection) -> Result<(u64, u64, u64)> {
    let number = |name| pragma::<i64>(conn, name).map(i64::unsigned_abs);
    Ok((number("page_count")?, number("freelist_count")?, number("page_size")?))
}

fn pragma<T: rusqlite::types::FromSql>(conn: &Connection, name: &str) -> Result<T> {
    conn.pragma_query_value(None, name, |row| row.get(0)).map_err(classify)
}

/// Writes the log back into the file and truncates it, if other connections permit.
pub(crate) fn checkpoint(conn: &Connection) -> Result<()> {
    conn.pragma(None, "wal_checkpoint", "TRUNCATE", |_| Ok(())).map_err(classify)
}

/// Does the same as [`checkpoint`], and closes the connection.
pub(crate) fn checkpoint_and_close(conn: Connection) -> Result<()> {
    let checkpoint = checkpoint(&conn);
    conn.close().map_err(|(_, error)| classify(error))?;
    checkpoint
}
