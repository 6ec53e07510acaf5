//! A database that has the schema already, for each test: a copy takes less time than the migrations, and in one database for all of them every
//! connection would hear of the 250 relations of each schema that is made.

use anyqueue::adapter::QueueStorage;
use anyqueue_postgres::PostgresQueue;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// The database that is copied, and the schema in it.
const MODEL: &str = "aq_model";

/// The URL of a database on the private server at this URL.
fn database(server: &str, name: &str) -> String {
    let (server, _) = server.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}

async fn run(url: &str, sql: String) {
    let mut conn = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

/// Makes the model.
pub(crate) async fn make(server: &str) {
    // Nobody can be connected to this one, which would be in the way.
    run(server, format!("CREATE DATABASE {MODEL} TEMPLATE template0")).await;
    let queue = PostgresQueue::open(&format!("{}?schema={MODEL}", database(server, MODEL))).await.unwrap();
    queue.close().await.unwrap();
}

/// Copies the model, with the schema under the name of the new database, and returns the URL of that. It goes with the server.
pub(crate) async fn copy(server: &str, name: &str) -> String {
    run(server, format!("CREATE DATABASE {name} TEMPLATE {MODEL}")).await;
    let url = database(server, name);
    // The functions keep the path on which they were made as text.
    let rename = format!(
        "ALTER SCHEMA {MODEL} RENAME TO {name};
         UPDATE pg_proc SET proconfig = replace(proconfig::text, '{MODEL}', '{name}')::text[] WHERE pronamespace = '{name}'::regnamespace"
    );
    run(&url, rename).await;
    url
}
