//! Opening a queue by URL, and what can be asked of its backend beside what the traits offer.

use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{PartitionOptions, Queue};
use anyqueue_backends::{backend, registry};

use crate::failure::{Failure, Result};

/// Whether opening makes what is missing: a file, a schema, tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Create {
    /// As the URL says; most backends do.
    AsTold,
    /// Never: a command that only looks must not leave an empty database behind a mistyped name.
    Never,
}

/// Opens the storage without initialising it.
pub(crate) async fn storage(url: &str, create: Create) -> anyqueue::Result<Arc<dyn Storage>> {
    let url = if create == Create::Never { without_creation(url) } else { url.to_owned() };
    anyqueue_backends::open(&url).await
}

/// Opens a queue, ready for use.
pub(crate) async fn queue(url: &str, create: Create) -> Result<Queue> {
    queue_with(url, create, PartitionOptions::default()).await
}

/// The same with options for its partitions.
pub(crate) async fn queue_with(url: &str, create: Create, options: PartitionOptions) -> Result<Queue> {
    let queue = Queue::builder(storage(url, create).await?).defaults(options).build()?;
    queue.init().await?;
    Ok(queue)
}

/// The URL with one more option.
pub(crate) fn with_option(url: &str, name: &str, value: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{name}={value}")
}

/// The URL with `create=false`, where the backend knows that option and the URL does not say otherwise.
fn without_creation(url: &str) -> String {
    let knows = backend(url).is_some_and(|b| b.options.iter().any(|option| option.name == "create"));
    if knows && !url.contains("?create=") && !url.contains("&create=") {
        with_option(url, "create", "false")
    } else {
        url.to_owned()
    }
}

/// Whether the URL is right and leads to nothing: a file that is not there.
pub(crate) fn is_missing(url: &str) -> bool {
    let Some(backend) = backend(url).filter(|backend| backend.name == "sqlite") else { return false };
    let options = url.split_once('?').map_or("", |(_, options)| options);
    let names =
        options.split('&').filter_map(|option| option.split('=').next()).filter(|name| !name.is_empty());
    let knows = |name: &str| backend.options.iter().any(|option| option.name == name);
    let is_there = |url: &anyqueue::adapter::StorageUrl| std::path::Path::new(url.path()).exists();
    names.into_iter().all(knows) && anyqueue::adapter::StorageUrl::parse(url).is_ok_and(|url| !is_there(&url))
}

/// What was found out about a backend.
#[derive(Debug)]
pub(crate) enum Told {
    /// It was asked.
    Fact(String),
    /// It cannot be asked, or was not.
    Unknown(String),
}

impl Told {
    fn unknown(text: &str) -> Self {
        Self::Unknown(text.to_owned())
    }
}

fn name(url: &str) -> &'static str {
    backend(url).map_or("", |backend| backend.name)
}

/// What was found out under the name of a check, unless it was asked in vain.
type Asked = (&'static str, anyqueue::Result<Told>);

/// What wears this backend out.
#[cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(clippy::unused_async, reason = "as with the features")
)]
pub(crate) async fn wear(url: &str) -> Vec<Asked> {
    let bloat = match name(url) {
        #[cfg(feature = "postgres")]
        "postgres" => return wear_of_tables(url).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => return wear_of_file(url).await,
        "memory" => Told::Fact("none: messages are in the memory of this process alone".to_owned()),
        "redis" => Told::unknown(
            "not measured; health warns from nine tenths of maxmemory on, and of a file that cannot be written",
        ),
        _ => Told::unknown("cannot be told: the server does not tell clients what its queues take"),
    };
    vec![("bloat", Ok(bloat))]
}

#[cfg(feature = "postgres")]
async fn wear_of_tables(url: &str) -> Vec<Asked> {
    let report = async {
        let storage = anyqueue_postgres::PostgresQueue::open(&without_creation(url)).await?;
        let report = storage.table_report().await;
        anyqueue::adapter::QueueStorage::close(&storage).await?;
        report
    };
    match report.await {
        Ok(report) => {
            wear_of(&report).into_iter().map(|(check, text)| (check, Ok(Told::Fact(text)))).collect()
        }
        Err(error) => vec![("bloat", Err(error))],
    }
}

#[cfg(feature = "postgres")]
fn wear_of(report: &anyqueue_postgres::TableReport) -> Vec<(&'static str, String)> {
    let oldest = report.oldest_transaction.map_or_else(
        || "no transaction that this role can see keeps dead rows".to_owned(),
        |age| format!("the oldest transaction is open for {}", crate::output::duration(age)),
    );
    let mut facts = vec![
        ("bloat", format!("{} live rows, {} dead ones", report.live_rows, report.dead_rows)),
        ("wear", oldest),
    ];
    if let Some((partition, age)) = &report.oldest_ready {
        let age = crate::output::duration(*age);
        facts.push(("wear", format!("longest waiting: a message of {partition}, for {age}")));
    }
    facts
}

#[cfg(feature = "sqlite")]
async fn wear_of_file(url: &str) -> Vec<Asked> {
    let report = async {
        let path = anyqueue::adapter::StorageUrl::parse(url)?.path().to_owned();
        let storage = anyqueue_sqlite::SqliteQueue::builder(path).create(false).open().await?;
        let report = storage.file_report().await;
        let _ = anyqueue::adapter::QueueStorage::close(&storage).await; // what could not be written back is found out elsewhere
        report
    };
    let report = match report.await {
        Ok(report) => report,
        Err(error) => return vec![("bloat", Err(error))],
    };
    let full = anyqueue::Error::new(anyqueue::ErrorKind::Full, "no message can be pushed: free disk space");
    let room = if report.is_full { Err(full) } else { Ok(Told::Fact("there is room for pushes".to_owned())) };
    vec![("bloat", Ok(Told::Fact(bloat_of(&report)))), ("room", room)]
}

#[cfg(feature = "sqlite")]
fn bloat_of(report: &anyqueue_sqlite::FileReport) -> String {
    let kib = |bytes: u64| format!("{} KiB", bytes.div_ceil(1024));
    let disk = report.disk_free_bytes.map_or_else(|| "an unknown amount".to_owned(), kib);
    format!(
        "{} of {} pages are free in a file of {}, the log takes {}, and {disk} are free on the disk",
        report.free_pages,
        report.pages,
        kib(report.file_bytes),
        kib(report.log_bytes)
    )
}

/// What a check that passed has shown of this user's rights.
pub(crate) fn rights(url: &str) -> Told {
    Told::Fact(
        match name(url) {
            "memory" => "none are needed",
            "sqlite" => "the file is open for writing: a write transaction was begun, and ended without a change",
            "postgres" => {
                "the server says: SELECT, INSERT, UPDATE, DELETE as they are needed on each table, EXECUTE on the functions"
            }
            "redis" => "every command that is used was tried, on a key of its own",
            "rabbitmq" => {
                return Told::unknown(
                    "to configure: tried, by declaring the exchanges; to write and to read: the server does not tell, --probe tries them",
                );
            }
            "sqs" => {
                return Told::unknown(
                    "GetQueueUrl was answered; of other actions the service does not tell, --probe tries them",
                );
            }
            _ => return Told::unknown("cannot be told: --probe tries them"),
        }
        .to_owned(),
    )
}

/// Whether the durability that a backend declares was asked of the server.
pub(crate) fn durability_source(url: &str) -> &'static str {
    match name(url) {
        "sqlite" => "asked: synchronous, of SQLite; that the disk obeys is assumed",
        "postgres" => "asked: synchronous_commit and fsync, of the server; that the disk obeys is assumed",
        "redis" => "asked: appendonly and appendfsync, of the server; that the disk obeys is assumed",
        "rabbitmq" => "declared for the queue_type of the URL: the server was not asked",
        "sqs" => "declared, as the service promises: it was not asked",
        _ => "declared: nobody was asked",
    }
}

/// How long this client assumes that the server lets a message be held, where the server does not tell and so an option of the URL must.
pub(crate) fn assumed_consumer_timeout(url: &str) -> Option<String> {
    let option = backend(url)?.options.iter().find(|option| option.name == "consumer_timeout")?;
    let set = anyqueue::adapter::StorageUrl::parse(url).ok()?.duration(option.name).ok()?;
    let assumed = set.map_or_else(|| option.default.to_owned(), crate::output::duration);
    Some(format!(
        "not told by the server over AMQP; this client assumes {assumed} (option consumer_timeout): compare with \
         `rabbitmqctl eval 'application:get_env(rabbit, consumer_timeout).'`"
    ))
}

/// The failure of a command that was given no URL.
pub(crate) fn no_url() -> Failure {
    let schemes: Vec<_> =
        registry().backends().iter().flat_map(|b| b.schemes).map(|scheme| format!("{scheme}:")).collect();
    Failure::Usage(format!(
        "no URL: give --url, or set ANYQUEUE_URL, for instance to sqlite:jobs.db; known are {}",
        schemes.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[test]
    fn commands_that_only_look_create_nothing_unless_told() {
        assert_eq!(without_creation("sqlite:a.db"), "sqlite:a.db?create=false");
        assert_eq!(
            without_creation("sqlite:a.db?busy_timeout=1s"),
            "sqlite:a.db?busy_timeout=1s&create=false"
        );
        assert_eq!(without_creation("sqlite:a.db?create=true"), "sqlite:a.db?create=true");
    }

    #[test]
    fn what_has_no_such_option_is_left_alone() {
        assert_eq!(without_creation("memory:"), "memory:");
        assert_eq!(without_creation("nonsense"), "nonsense");
    }
}
