//! What commands share: the URL, the output, and how arguments are parsed.

use anyqueue::{Keep, PartitionId, PartitionOptions, Queue};

use crate::failure::{Result, with_text};
use crate::open::{self, Create, OF_LEDGER};
use crate::output::Output;

/// The environment variable that holds the URL if none is given.
pub(crate) const URL_VARIABLE: &str = "ANYQUEUE_URL";

/// The environment variable that holds the URL of the ledger if none is given.
pub(crate) const LEDGER_VARIABLE: &str = "ANYQUEUE_LEDGER_URL";

/// The environment variable that tells a worker that it is supervised, and its name. The worker's own
/// commands do not get it.
pub(crate) const SUPERVISED_VARIABLE: &str = "ANYQUEUE_SUPERVISED_AS";

/// The prefix of the name of a variable that holds a URL.
const VARIABLE_PREFIX: &str = "env:";

/// What commands share.
pub(crate) struct Session {
    url: Option<String>,
    ledger_url: Option<String>,
    pub(crate) output: Output,
}

impl Session {
    /// Creates a session with the common URLs, if they were given.
    pub(crate) fn new(url: Option<String>, ledger_url: Option<String>, output: Output) -> Self {
        Self { url, ledger_url: ledger_url.filter(|url| !url.is_empty()), output }
    }

    /// The command's own URL, or the common one.
    pub(crate) fn url<'a>(&'a self, own: Option<&'a str>) -> Result<&'a str> {
        own.or(self.url.as_deref()).filter(|url| !url.is_empty()).ok_or_else(open::no_url)
    }

    /// The queue at the common URL, ready for use.
    pub(crate) async fn queue(&self, create: Create) -> Result<Queue> {
        self.queue_with(create, PartitionOptions::default(), None).await
    }

    /// The URL of the ledger, if the ends of tasks are kept apart from the queues.
    pub(crate) fn ledger_url(&self) -> Option<&str> {
        self.ledger_url.as_deref()
    }

    /// The same with options for its partitions, and a ledger if ends are to be kept.
    pub(crate) async fn queue_with(
        &self,
        create: Create,
        options: PartitionOptions,
        keep: Option<Keep>,
    ) -> Result<Queue> {
        open::queue_with(self.url(None)?, self.ledger_url(), create, options, keep).await
    }

    /// Warns of what is wrong with the ledger's storage, if there is one at a URL of its own. For commands
    /// that run for long, once their queue is open: otherwise the first end that cannot be kept would tell.
    pub(crate) async fn warn_of_ledger(&self) -> Result {
        let Some(url) = self.ledger_url() else { return Ok(()) };
        let ledger = open::check_ledger(url).await.map_err(|error| with_text(&error, OF_LEDGER))?;
        for warning in &ledger.warnings {
            self.output.warn(&format!("ledger: {warning}"));
        }
        Ok(())
    }
}

/// Parses a URL, or the name of the variable that holds it: every user of the machine can read the arguments
/// of a command, and a URL can contain a password.
pub(crate) fn url_argument(text: &str) -> Result<String, String> {
    let Some(name) = text.strip_prefix(VARIABLE_PREFIX) else { return Ok(text.to_owned()) };
    match std::env::var(name) {
        Ok(url) if !url.is_empty() => Ok(url),
        Ok(_) | Err(std::env::VarError::NotPresent) => Err(format!("the variable {name} is not set")),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("the variable {name} is not UTF-8")),
    }
}

/// Parses the name of a queue.
pub(crate) fn queue_name(text: &str) -> Result<PartitionId, String> {
    if text.contains("://") {
        return Err("this is a URL: give it with --url, and here the name of a queue".to_owned());
    }
    PartitionId::new(text).map_err(|error| error.message().to_owned())
}

/// Parses `name=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as name=value")?;
    Ok((name.to_owned(), value.to_owned()))
}
