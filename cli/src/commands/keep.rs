//! How long the ends of the tasks that a command settles are kept.

use std::time::Duration;

use anyqueue::{Keep, PartitionOptions};
use clap::Args;

use crate::session::Session;

/// Any of them makes the command keep ends.
#[derive(Args)]
#[group(id = "ends", multiple = true)]
pub(super) struct KeepArgs {
    /// Keeps what happened to each message, for `anyqueue tasks`: a day if it succeeded or was cancelled,
    /// else a week
    #[arg(long)]
    ledger: bool,
    /// How long to keep successes, or `forever`; 0s keeps none
    #[arg(long, value_name = "TIME", value_parser = keep)]
    keep_success: Option<Forever>,
    /// How long to keep what failed, timed out or was cancelled, or `forever`; 0s keeps none
    #[arg(long, value_name = "TIME", value_parser = keep)]
    keep_failure: Option<Forever>,
    /// Keeps whatever becomes of messages of this kind for so long, or `forever`; 0s keeps nothing. Takes precedence over
    /// the other two; repeatable
    #[arg(long, value_name = "KIND=TIME", value_parser = keep_of_kind)]
    keep_kind: Vec<(String, Forever)>,
}

/// A time, or forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forever(Option<Duration>);

fn keep(text: &str) -> Result<Forever, String> {
    if text == "forever" {
        return Ok(Forever(None));
    }
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; or write forever"))?;
    Ok(Forever(Some(time)))
}

/// The time comes last, for a kind may contain a `=`.
fn keep_of_kind(text: &str) -> Result<(String, Forever), String> {
    let (kind, time) = text.rsplit_once('=').ok_or("write it as kind=time, such as mail=36h")?;
    Ok((kind.to_owned(), keep(time)?))
}

impl KeepArgs {
    /// Adds what is said of single kinds.
    pub(super) fn with_kinds(&self, options: PartitionOptions) -> PartitionOptions {
        self.keep_kind.iter().fold(options, |options, (kind, Forever(time))| {
            options.with_keep_of_kind(kind.as_str(), Keep::all(*time))
        })
    }

    /// `None` if no ends are to be kept: no option asks for it, and there is no ledger URL.
    pub(super) fn keep_on(&self, session: &Session) -> Option<Keep> {
        self.keep().or_else(|| session.ledger_url().map(|_| Keep::default()))
    }

    fn keep(&self) -> Option<Keep> {
        let is_limited = self.keep_success.is_some() || self.keep_failure.is_some();
        let wanted = self.ledger || is_limited || !self.keep_kind.is_empty();
        let mut keep = Keep::default();
        if let Some(Forever(time)) = self.keep_success {
            keep = keep.with_succeeded(time);
        }
        if let Some(Forever(time)) = self.keep_failure {
            keep = keep.with_failed(time).with_cancelled(time);
        }
        wanted.then_some(keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_kept_if_anything_says_so() {
        let args = |ledger, keep_success, keep_failure| KeepArgs {
            ledger,
            keep_success,
            keep_failure,
            keep_kind: Vec::new(),
        };
        assert_eq!(args(false, None, None).keep(), None);
        assert_eq!(args(true, None, None).keep(), Some(Keep::default()));
        let forever = args(false, Some(keep("forever").unwrap()), None).keep().unwrap();
        assert_eq!((forever.succeeded, forever.failed), (None, Keep::default().failed));
        let second = Some(Duration::from_secs(1));
        let short = args(false, None, Some(keep("1s").unwrap())).keep().unwrap();
        assert_eq!((short.failed, short.timed_out, short.cancelled), (second, second, second));
        assert_eq!(short.succeeded, Keep::default().succeeded);
        assert!(keep("soon").is_err());
    }

    #[test]
    fn kinds_are_kept_for_their_own_time() {
        let mut args =
            KeepArgs { ledger: false, keep_success: None, keep_failure: None, keep_kind: Vec::new() };
        args.keep_kind = ["mail=36h", "a=b=forever"].map(|text| keep_of_kind(text).unwrap()).into();
        assert_eq!(args.keep(), Some(Keep::default()), "all others as usual");
        let options = args.with_kinds(PartitionOptions::default()).keep_of_kinds;
        assert_eq!(options.get("mail"), Some(&Keep::all(Some(Duration::from_hours(36)))));
        assert_eq!(options.get("a=b"), Some(&Keep::all(None)));
        for wrong in ["mail", "mail=", "mail=soon"] {
            assert!(keep_of_kind(wrong).is_err(), "{wrong}");
        }
    }
}
