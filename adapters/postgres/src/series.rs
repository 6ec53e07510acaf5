//! Reading and freeing counts of task ends by minute.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{SeriesCell, SeriesKey};
use anyqueue::{EndState, Error, ErrorKind, Operation, Page, PartitionId, Result, SERIES_KEPT};
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;

use crate::PostgresQueue;
use crate::error::ERRORS;
use crate::sql::{Statements, get, int};

/// The most counters that one statement frees, and the most such statements in one call. Both are independent
/// of the number of ends that are freed, because a minute with few ends to keep may have many counters.
const STEP_ROWS: i64 = 5_000;
const MOST_STEPS: usize = 50;

/// The statement that reads a page.
pub(crate) fn page(
    statements: &Statements,
    partition: &PartitionId,
    minutes: &Range<u64>,
    page: &Page<SeriesKey>,
) -> Query<'static, Postgres, PgArguments> {
    let query = statements.series.query().bind(partition.name().to_owned());
    let query = match page.after.as_ref().filter(|key| key.minute >= minutes.start) {
        Some(SeriesKey { minute, kind, state, ran_bucket, waited_bucket }) => {
            let kind = kind.as_deref().unwrap_or_default().as_bytes().to_vec();
            let query = query.bind(number(*minute)).bind(kind).bind(i16::from(state.code()));
            query.bind(i16::from(*ran_bucket)).bind(i16::from(*waited_bucket))
        }
        // This sorts before the first key of its minute, since there is no state 0.
        None => query.bind(number(minutes.start)).bind(Vec::<u8>::new()).bind(0_i16).bind(0_i16).bind(0_i16),
    };
    query.bind(number(minutes.end)).bind(i64::from(int(page.limit)))
}

impl PostgresQueue {
    /// Frees counters that are no longer kept: more per call than are added until the next one.
    pub(crate) async fn purge_series(&self) -> Result<()> {
        for _ in 0..MOST_STEPS {
            let rows = self.fetch(purge(&self.inner.statements), Operation::Inspect).await?;
            let freed = rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?;
            if freed < STEP_ROWS {
                break;
            }
        }
        Ok(())
    }
}

/// The statement that frees some counters that are no longer kept, and returns how many.
fn purge(statements: &Statements) -> Query<'static, Postgres, PgArguments> {
    // One minute more, like core's `first_minute_kept`.
    let kept = number(SERIES_KEPT.as_secs() / 60 + 1);
    statements.purge_series.query().bind(kept).bind(STEP_ROWS)
}

/// Reads a counter from its columns.
pub(crate) fn read_cell(row: &PgRow) -> Result<SeriesCell> {
    let positive = |column| get::<i64>(row, column).map(i64::unsigned_abs);
    let small = |column| get::<i16>(row, column).map(|number| u8::try_from(number).unwrap_or(u8::MAX));
    let kind = std::str::from_utf8(get(row, 1)?).map_err(damaged)?;
    let key = SeriesKey {
        minute: positive(0)?,
        kind: Some(kind).filter(|kind| !kind.is_empty()).map(Arc::from),
        state: EndState::from_code(small(2)?)?,
        ran_bucket: small(3)?,
        waited_bucket: small(4)?,
    };
    let (ran, waited) = (Duration::from_micros(positive(6)?), Duration::from_micros(positive(7)?));
    Ok(SeriesCell::new(key, positive(5)?, ran, waited))
}

fn damaged(error: std::str::Utf8Error) -> Error {
    ERRORS.error(ErrorKind::Corrupt, "the kind of a counter of ends is no text").with_source(error)
}

fn number(minute: u64) -> i64 {
    i64::try_from(minute).unwrap_or(i64::MAX)
}
