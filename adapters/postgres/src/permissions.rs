//! Checking that the role may do what the queue's statements do. The functions run with the permissions of
//! their caller.

use anyqueue::{ErrorKind, Result};

use crate::error::{ERRORS, read_only};
use crate::pool::Pool;
use crate::sql::{Schema, get};

/// The privileges needed on each table. The table of migrations has been read before. Without TRUNCATE on the
/// tables of ends, they are freed row by row.
const NEEDED: [(&str, &[&str]); 6] = [
    ("partition", &["SELECT", "INSERT", "UPDATE"]),
    ("message", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("message_group", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("ended", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("series", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("control_entry", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
];

const MISSING: &str = "SELECT n.privilege || ' on table ' || n.name
    FROM unnest($2, $3) AS n(name, privilege)
    WHERE has_table_privilege(to_regclass($1 || '.' || n.name), n.privilege) IS NOT TRUE
    UNION ALL
    SELECT 'EXECUTE on function ' || p.proname FROM pg_proc p
    WHERE p.pronamespace = to_regnamespace($1) AND NOT has_function_privilege(p.oid, 'EXECUTE')
    ORDER BY 1";

const READ_ONLY: &str = "SELECT current_setting('transaction_read_only') = 'on'";

/// Asks the server for missing privileges.
///
/// # Errors
/// `AccessDenied` with the list; `Unavailable` if nobody can write, as on a replica.
pub(crate) async fn check(pool: &Pool, schema: &Schema) -> Result<()> {
    let rows = pool.fetch(sqlx::query(READ_ONLY)).await?;
    if rows.first().map_or(Ok(false), |row| get(row, 0))? {
        return Err(read_only());
    }
    let needed = || {
        NEEDED
            .iter()
            .flat_map(|(table, privileges)| privileges.iter().map(move |privilege| (table, privilege)))
    };
    let (tables, privileges): (Vec<_>, Vec<_>) =
        needed().map(|(table, privilege)| ((*table).to_owned(), (*privilege).to_owned())).unzip();
    let query = sqlx::query(MISSING).bind(schema.name().to_owned()).bind(tables).bind(privileges);
    let rows = pool.fetch(query).await?;
    let missing: Vec<String> = rows.iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!(
        "permissions are missing in schema {}: {}; GRANT them to the role of the URL",
        schema.name(),
        missing.join(", ")
    );
    Err(ERRORS.error(ErrorKind::AccessDenied, text))
}
