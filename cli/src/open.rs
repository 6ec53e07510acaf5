//! Opening a queue by URL: the only place that names backends.

use std::sync::Arc;

use anyqueue::{Backend, Queue, Registry, Storage};

use crate::failure::{Failure, Result};

/// Whether opening makes what is missing: a file, a schema, tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Create {
    /// As the URL says; most backends do.
    AsTold,
    /// Never: a command that only looks must not leave an empty database behind a mistyped name.
    Never,
}

/// The backends that this build has.
pub(crate) fn registry() -> Registry {
    let registry = Registry::new();
    #[cfg(feature = "memory")]
    let registry = registry.with(anyqueue_memory::backend());
    #[cfg(feature = "sqlite")]
    let registry = registry.with(anyqueue_sqlite::backend());
    #[cfg(feature = "postgres")]
    let registry = registry.with(anyqueue_postgres::backend());
    #[cfg(feature = "redis")]
    let registry = registry.with(anyqueue_redis::backend());
    #[cfg(feature = "rabbitmq")]
    let registry = registry.with(anyqueue_rabbitmq::backend());
    #[cfg(feature = "sqs")]
    let registry = registry.with(anyqueue_sqs::backend());
    registry
}

/// Opens the storage without initialising it.
pub(crate) async fn storage(url: &str, create: Create) -> anyqueue::Result<Arc<dyn Storage>> {
    let url = if create == Create::Never { without_creation(url) } else { url.to_owned() };
    registry().open(&url).await
}

/// Opens a queue, ready for use.
pub(crate) async fn queue(url: &str, create: Create) -> Result<Queue> {
    let queue = Queue::new(storage(url, create).await?)?;
    queue.init().await?;
    Ok(queue)
}

/// The backend that answers to the URL, if this build has it.
pub(crate) fn backend(url: &str) -> Option<Backend> {
    let scheme = url.split_once(':')?.0.to_ascii_lowercase();
    registry().backends().iter().find(|backend| backend.schemes.contains(&scheme.as_str())).copied()
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

/// What only this backend can tell of its wear: whether each could be told, and what.
#[cfg(feature = "postgres")]
pub(crate) async fn wear(url: &str) -> Vec<(bool, String)> {
    if backend(url).is_none_or(|backend| backend.name != anyqueue_postgres::backend().name) {
        return Vec::new();
    }
    let report = async {
        let storage = anyqueue_postgres::PostgresQueue::open(&without_creation(url)).await?;
        let report = storage.table_report().await;
        anyqueue::QueueStorage::close(&storage).await?;
        report
    };
    match report.await {
        Ok(report) => wear_of(&report).into_iter().map(|text| (true, text)).collect(),
        Err(error) => vec![(false, crate::failure::with_causes(&error))],
    }
}

#[cfg(not(feature = "postgres"))]
#[allow(clippy::unused_async, reason = "as with the feature")]
pub(crate) async fn wear(_: &str) -> Vec<(bool, String)> {
    Vec::new()
}

#[cfg(feature = "postgres")]
fn wear_of(report: &anyqueue_postgres::TableReport) -> Vec<String> {
    let mut facts = vec![format!("{} live rows, {} dead ones", report.live_rows, report.dead_rows)];
    if let Some(age) = report.oldest_transaction {
        facts.push(format!("the oldest transaction is open for {}", crate::output::duration(age)));
    }
    if let Some((partition, age)) = &report.oldest_ready {
        facts.push(format!(
            "longest waiting: a message of {partition}, for {}",
            crate::output::duration(*age)
        ));
    }
    facts
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
