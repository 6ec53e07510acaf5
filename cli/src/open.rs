//! Opens a queue by URL.

use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Beside, ErrorKind, Keep, PartitionOptions, Queue};
use anyqueue_backends::{backend, registry};

use crate::failure::{Failure, Result, with_text};
use crate::server;

/// Added to errors of the ledger's storage: it may be of the same kind as that of the queue.
pub(crate) const OF_LEDGER: &str = "this is the ledger at --ledger-url";

/// Whether opening creates what is missing: a file, a schema, tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Create {
    /// As the URL says: most backends create it unless `create=false`.
    AsUrlSays,
    /// Never: a command that only reads must not create an empty database for a mistyped name.
    Never,
}

/// Opens the storage without initialising it. If that fails, the error says which server was found instead.
pub(crate) async fn storage(url: &str, create: Create) -> anyqueue::Result<Arc<dyn Storage>> {
    let url = if create == Create::Never { without_creation(url) } else { url.to_owned() };
    match anyqueue_backends::open(&url).await {
        Err(error) if is_of_server(error.kind()) => Err(match server::hint(&url).await {
            Some(hint) => with_text(&error, &hint),
            None => error,
        }),
        opened => opened,
    }
}

/// Whether the cause can be that there is another server than the expected one, or none.
fn is_of_server(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Incompatible | ErrorKind::Internal
    )
}

/// Opens a queue, ready for use.
pub(crate) async fn queue(url: &str, create: Create) -> Result<Queue> {
    queue_with(url, None, create, PartitionOptions::default(), None).await
}

/// The same with options for its partitions, a ledger in another storage if that has a URL, and ends that are
/// kept if `keep` is set.
pub(crate) async fn queue_with(
    url: &str,
    ledger_url: Option<&str>,
    create: Create,
    options: PartitionOptions,
    keep: Option<Keep>,
) -> Result<Queue> {
    let mut opened = storage(url, create).await?;
    if let Some(ledger_url) = ledger_url {
        let of_ledger = |error: anyqueue::Error| with_text(&error, OF_LEDGER);
        let ledger = storage(ledger_url, create).await.map_err(of_ledger)?;
        opened = Arc::new(Beside::new(opened, Arc::clone(&ledger))?);
        // Apart from the queue, so that an error tells which of the two it is about.
        ledger.init().await.map_err(of_ledger)?;
    }
    let mut builder = Queue::builder(opened).defaults(options);
    if let Some(keep) = keep {
        builder = builder.ledger(keep);
    }
    let queue = builder.build()?;
    queue.init().await?;
    Ok(queue)
}

/// What the storage of a ledger reports about itself.
pub(crate) struct LedgerCheck {
    /// The name of its backend.
    pub(crate) name: &'static str,
    /// Whether the backend can keep the ends of tasks.
    pub(crate) keeps_ends: bool,
    /// What an operator should look at.
    pub(crate) warnings: Vec<String>,
}

/// Asks the storage at the URL of a ledger whether it can serve. Creates nothing.
pub(crate) async fn check_ledger(url: &str) -> anyqueue::Result<LedgerCheck> {
    let queue = Queue::new(storage(url, Create::Never).await?)?;
    let checked = match queue.init().await {
        Ok(()) => queue.check().await,
        Err(error) => Err(error),
    };
    // Nothing was stored that could be lost now.
    let _ = queue.close().await;
    let (name, keeps_ends) = (queue.storage().name(), queue.capabilities().ledger.is_some());
    checked.map(|health| LedgerCheck { name, keeps_ends, warnings: health.warnings })
}

/// The URL with one more option.
pub(crate) fn with_option(url: &str, name: &str, value: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{name}={value}")
}

/// The URL with `create=false`, if the backend has that option and the URL does not set it.
pub(crate) fn without_creation(url: &str) -> String {
    let knows = backend(url).is_some_and(|b| b.options.iter().any(|option| option.name == "create"));
    if knows && !url.contains("?create=") && !url.contains("&create=") {
        with_option(url, "create", "false")
    } else {
        url.to_owned()
    }
}

/// Whether the URL is well-formed, but its file does not exist.
pub(crate) fn is_missing(url: &str) -> bool {
    let Some(backend) = backend(url).filter(|backend| backend.name == "sqlite") else { return false };
    let options = url.split_once('?').map_or("", |(_, options)| options);
    let names =
        options.split('&').filter_map(|option| option.split('=').next()).filter(|name| !name.is_empty());
    let knows = |name: &str| backend.options.iter().any(|option| option.name == name);
    let is_there = |url: &anyqueue::adapter::StorageUrl| std::path::Path::new(url.path()).exists();
    names.into_iter().all(knows) && anyqueue::adapter::StorageUrl::parse(url).is_ok_and(|url| !is_there(&url))
}

/// The failure of a command without a URL.
pub(crate) fn no_url() -> Failure {
    let schemes: Vec<_> =
        registry().backends().iter().flat_map(|b| b.schemes).map(|scheme| format!("{scheme}:")).collect();
    Failure::Usage(format!(
        "no URL: give --url, or set ANYQUEUE_URL, for instance to sqlite:jobs.db; known schemes: {}",
        schemes.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[test]
    fn commands_that_only_read_create_nothing_unless_the_url_says_so() {
        assert_eq!(without_creation("sqlite:a.db"), "sqlite:a.db?create=false");
        assert_eq!(
            without_creation("sqlite:a.db?busy_timeout=1s"),
            "sqlite:a.db?busy_timeout=1s&create=false"
        );
        assert_eq!(without_creation("sqlite:a.db?create=true"), "sqlite:a.db?create=true");
    }

    #[test]
    fn backends_without_the_option_are_left_alone() {
        assert_eq!(without_creation("memory:"), "memory:");
        assert_eq!(without_creation("nonsense"), "nonsense");
    }
}
