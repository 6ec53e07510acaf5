//! How long the ends of the tasks that a command settles are kept.

use std::time::Duration;

use anyqueue::Keep;
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

impl KeepArgs {
    /// `None` if no ends are to be kept: no option asks for it, and there is no ledger URL.
    pub(super) fn keep_on(&self, session: &Session) -> Option<Keep> {
        self.keep().or_else(|| session.ledger_url().map(|_| Keep::default()))
    }

    fn keep(&self) -> Option<Keep> {
        let wanted = self.ledger || self.keep_success.is_some() || self.keep_failure.is_some();
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
        let args =
            |ledger, success, failure| KeepArgs { ledger, keep_success: success, keep_failure: failure };
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
}
