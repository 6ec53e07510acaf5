//! Questions that are specific to a backend, beyond what the storage traits offer.

use anyqueue_backends::backend;

use super::findings::Finding;
use crate::output::duration;

const BLOAT: &str = "bloat";
const RIGHTS: &str = "rights";

fn name(url: &str) -> &'static str {
    backend(url).map_or("", |backend| backend.name)
}

/// How much space is taken by data that is no longer needed, and what keeps it from being freed.
#[cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(clippy::unused_async, reason = "as with the features")
)]
pub(super) async fn bloat(url: &str) -> Vec<Finding> {
    vec![match name(url) {
        #[cfg(feature = "postgres")]
        "postgres" => return bloat_of_tables(url).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => return bloat_of_file(url).await,
        "memory" => Finding::ok(BLOAT, "none: messages are only in the memory of this process"),
        "redis" => Finding::unknown(
            BLOAT,
            "not measured; health warns above nine tenths of maxmemory, and when a file cannot be written",
        ),
        _ => {
            Finding::unknown(BLOAT, "unknown: the server does not tell clients how much room its queues take")
        }
    }]
}

#[cfg(feature = "postgres")]
async fn bloat_of_tables(url: &str) -> Vec<Finding> {
    let report = async {
        let storage = anyqueue_postgres::PostgresQueue::open(&crate::open::without_creation(url)).await?;
        let report = storage.table_report().await;
        anyqueue::adapter::QueueStorage::close(&storage).await?;
        report
    };
    let report = match report.await {
        Ok(report) => report,
        Err(error) => return vec![Finding::failed(BLOAT, &error)],
    };
    let oldest = report.oldest_transaction.map_or_else(
        || "none that this role can see keeps dead rows".to_owned(),
        |age| format!("open for {}", duration(age)),
    );
    let mut findings = vec![
        Finding::ok(BLOAT, format!("{} live rows, {} dead rows", report.live_rows, report.dead_rows)),
        Finding::ok("oldest transaction", oldest),
    ];
    if let Some((partition, age)) = &report.oldest_ready {
        let text = format!("a message in {partition} has been ready for {}", duration(*age));
        findings.push(Finding::ok("oldest message", text));
    }
    findings
}

#[cfg(feature = "sqlite")]
async fn report_of_file(url: &str) -> anyqueue::Result<anyqueue_sqlite::FileReport> {
    let path = anyqueue::adapter::StorageUrl::parse(url)?.path().to_owned();
    let storage = anyqueue_sqlite::SqliteQueue::builder(path).create(false).open().await?;
    let report = storage.file_report().await;
    let _ = anyqueue::adapter::QueueStorage::close(&storage).await; // another check finds what could not be written back
    report
}

#[cfg(feature = "sqlite")]
async fn bloat_of_file(url: &str) -> Vec<Finding> {
    match report_of_file(url).await {
        Ok(report) => {
            let room = room("room", &report, "no message can be pushed", "there is room for pushes");
            vec![Finding::ok(BLOAT, pages(&report)), room]
        }
        Err(error) => vec![Finding::failed(BLOAT, &error)],
    }
}

/// Whether the file of a ledger beside the queue has room for more ends; nothing if it is not in a file.
#[cfg(feature = "sqlite")]
pub(super) async fn ledger_room(url: &str) -> Option<Finding> {
    const CHECK: &str = "ledger room";
    if name(url) != "sqlite" {
        return None;
    }
    Some(match report_of_file(url).await {
        Ok(report) => {
            room(CHECK, &report, "no end of a task can be kept", "there is room for the ends of tasks")
        }
        Err(error) => Finding::failed(CHECK, &error),
    })
}

#[cfg(feature = "sqlite")]
fn room(check: &'static str, report: &anyqueue_sqlite::FileReport, full: &str, fine: &str) -> Finding {
    if report.is_full {
        let text = format!("{full}: free disk space");
        Finding::failed(check, &anyqueue::Error::new(anyqueue::ErrorKind::Full, text))
    } else {
        Finding::ok(check, fine)
    }
}

#[cfg(feature = "sqlite")]
fn pages(report: &anyqueue_sqlite::FileReport) -> String {
    let kib = |bytes: u64| format!("{} KiB", bytes.div_ceil(1024));
    let disk = report.disk_free_bytes.map_or_else(|| "an unknown amount".to_owned(), kib);
    format!(
        "{} of {} pages are free in a file of {}; the log takes {}; {disk} are free on the disk",
        report.free_pages,
        report.pages,
        kib(report.file_bytes),
        kib(report.log_bytes)
    )
}

/// What a passed health check has shown about this user's rights.
pub(super) fn rights(url: &str) -> Finding {
    match name(url) {
        "memory" => Finding::ok(RIGHTS, "none are needed"),
        "sqlite" => Finding::ok(
            RIGHTS,
            "the file can be written: a write transaction was begun, and rolled back without a change",
        ),
        "postgres" => Finding::ok(
            RIGHTS,
            "asked of the server: SELECT, INSERT, UPDATE and DELETE as needed on each table, EXECUTE on the functions",
        ),
        "redis" => Finding::ok(RIGHTS, "every command in use was tried, on a key of its own"),
        "rabbitmq" => Finding::unknown(
            RIGHTS,
            "configure: tried, by declaring the exchanges; write and read: the server does not tell, --probe tries them",
        ),
        "sqs" => Finding::unknown(
            RIGHTS,
            "GetQueueUrl works; the service does not tell about other actions, --probe tries them",
        ),
        _ => Finding::unknown(RIGHTS, "unknown: --probe tries them"),
    }
}

/// Where the declared durability comes from.
pub(super) fn durability_source(url: &str) -> &'static str {
    match name(url) {
        "sqlite" => "SQLite was asked for synchronous; that the disk obeys is assumed",
        "postgres" => "the server was asked for synchronous_commit and fsync; that the disk obeys is assumed",
        "redis" => "the server was asked for appendonly and appendfsync; that the disk obeys is assumed",
        "rabbitmq" => "declared for the queue_type in the URL: the server was not asked",
        "sqs" => "declared as the service promises: it was not asked",
        _ => "declared: nothing was asked",
    }
}

/// How long this client assumes that the server lets a message be held, if the server does not tell and an
/// option of the URL does.
pub(super) fn assumed_consumer_timeout(url: &str) -> Option<String> {
    let option = backend(url)?.options.iter().find(|option| option.name == "consumer_timeout")?;
    let set = anyqueue::adapter::StorageUrl::parse(url).ok()?.duration(option.name).ok()?;
    let assumed = set.map_or_else(|| option.default.to_owned(), duration);
    Some(format!(
        "the server does not tell it over AMQP; this client assumes {assumed} (option consumer_timeout): compare with \
         `rabbitmqctl eval 'application:get_env(rabbit, consumer_timeout).'`"
    ))
}
