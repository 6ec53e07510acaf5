//! Running statements: several in one hop to SQLite's thread, and lists padded to a few sizes so that statements are cached.

use std::sync::Arc;

use anyqueue::Result;
use futures_util::TryStreamExt;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Decode, Either, Row, Sqlite, SqliteConnection, Type};

use crate::error::classify;

/// Rows of the longest list in one statement.
pub(crate) const MAX_ROWS: usize = 128;
/// The sizes lists are padded to; what is not bound is NULL, which statements skip.
const SIZES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, MAX_ROWS];

/// A value of one parameter.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Integer(i64),
    Text(Arc<str>),
    Blob(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}
impl From<Arc<str>> for Value {
    fn from(value: Arc<str>) -> Self {
        Self::Text(value)
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}
impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A statement, or several separated by `;`, with the values of its parameters in their order.
#[derive(Debug)]
pub(crate) struct Statement {
    text: &'static str,
    values: Vec<Value>,
    is_list: bool,
}

/// A statement of fixed text.
pub(crate) fn statement(text: &'static str) -> Statement {
    Statement { text, values: Vec::new(), is_list: false }
}

impl Statement {
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Binds the values of each item.
    pub(crate) fn bind_each<T>(
        self,
        items: impl IntoIterator<Item = T>,
        bind: impl FnMut(Self, T) -> Self,
    ) -> Self {
        items.into_iter().fold(self, bind)
    }

    /// Binds NULL so many times.
    pub(crate) fn bind_nulls(mut self, count: usize) -> Self {
        self.values.resize(self.values.len() + count, Value::Null);
        self
    }

    fn parameters(&self) -> usize {
        self.text.bytes().filter(|byte| *byte == b'?').count()
    }
}

/// Statements that go to SQLite together.
#[derive(Debug, Default)]
pub(crate) struct Script {
    texts: Vec<&'static str>,
    values: Vec<Value>,
    has_list: bool,
    steps: usize,
}

impl Script {
    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// How many statements it has.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Whether the statement can come along: with one list at most, few different texts arise, and their plans stay cached.
    pub(crate) fn takes(&self, statement: &Statement) -> bool {
        !(self.has_list && statement.is_list)
    }

    pub(crate) fn add(&mut self, statement: Statement) {
        let parameters = if statement.is_list { statement.parameters() } else { statement.values.len() };
        let end = self.values.len() + parameters;
        self.texts.push(statement.text);
        self.values.extend(statement.values);
        self.values.resize(end, Value::Null);
        self.has_list |= statement.is_list;
        self.steps += 1 + statement.text.bytes().filter(|byte| *byte == b';').count();
    }

    /// Runs it. Answers the rows of each statement in it.
    pub(crate) async fn run(self, conn: &mut SqliteConnection) -> Result<Vec<Vec<SqliteRow>>> {
        let mut arguments = SqliteArguments::default();
        arguments.reserve(self.values.len(), 0);
        for value in self.values {
            let added = match value {
                Value::Null => arguments.add(None::<i64>),
                Value::Integer(value) => arguments.add(value),
                Value::Text(value) => arguments.add(value),
                Value::Blob(value) => arguments.add(value),
            };
            added.map_err(|error| classify(sqlx::Error::Encode(error)))?;
        }
        let query = match self.texts.as_slice() {
            [text] => sqlx::query_with(*text, arguments),
            texts => sqlx::query_with(AssertSqlSafe(texts.join(";")), arguments),
        };
        let mut all = vec![Vec::new()];
        let mut steps = sqlx::Executor::fetch_many(conn, query);
        while let Some(step) = steps.try_next().await.map_err(classify)? {
            match (step, all.last_mut()) {
                (Either::Right(row), Some(last)) => last.push(row),
                _ => all.push(Vec::new()),
            }
        }
        all.pop(); // begun after the last statement
        Ok(all)
    }
}

/// Runs to the end, ignoring rows.
pub(crate) async fn run(conn: &mut SqliteConnection, statement: Statement) -> Result<()> {
    rows(conn, statement).await.map(drop)
}

/// All rows of a statement.
pub(crate) async fn rows(conn: &mut SqliteConnection, statement: Statement) -> Result<Vec<SqliteRow>> {
    let mut script = Script::default();
    script.add(statement);
    Ok(script.run(conn).await?.into_iter().flatten().collect())
}

/// A column's value.
pub(crate) fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(row: &'r SqliteRow, column: usize) -> Result<T> {
    row.try_get(column).map_err(classify)
}

/// A statement over a list of rows, in one text per padded size.
pub(crate) struct Listed {
    texts: [String; SIZES.len()],
}

impl Listed {
    /// `text` makes the statement for a list of so many rows.
    pub(crate) fn new(text: impl Fn(usize) -> String) -> Self {
        Self { texts: SIZES.map(text) }
    }

    /// The statement for at least `rows` rows (at most [`MAX_ROWS`]), nothing bound yet.
    pub(crate) fn of(&'static self, rows: usize) -> Statement {
        let size = SIZES.iter().position(|size| *size >= rows).unwrap_or(SIZES.len() - 1);
        let text = self.texts.get(size).map_or("", String::as_str);
        Statement { text, values: Vec::new(), is_list: true }
    }

    /// How many rows are added to `rows` of them, which must be bound as NULL if another list follows in the text.
    pub(crate) fn padding(rows: usize) -> usize {
        SIZES.iter().find(|size| **size >= rows).map_or(0, |size| size - rows)
    }

    /// The texts, for looking at their plans.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }
}

/// `?,?,…`: a list of values.
///
/// Parameters have no numbers: SQLite finds a numbered one by searching all of them, which for a long list costs more
/// than the statement itself.
pub(crate) fn values(count: usize) -> String {
    vec!["?"; count].join(",")
}

/// `(?,?),(?,?),…`: rows of so many columns.
pub(crate) fn tuples(rows: usize, width: usize) -> String {
    vec![format!("({})", values(width)); rows].join(",")
}

/// The statement once per row.
pub(crate) fn repeated(rows: usize, statement: &str) -> String {
    vec![statement; rows].join(";")
}
