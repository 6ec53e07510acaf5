//! Repeats a command.

use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Result};
use crate::output::Output;

/// Whether to repeat, and how often.
#[derive(Args)]
pub(super) struct Watch {
    /// Repeats this at this interval
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s",
        value_parser = humantime::parse_duration
    )]
    watch: Option<Duration>,
    /// Stops --watch after this many rounds
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
}

impl Watch {
    /// Runs it once, or repeats it until there were enough rounds.
    pub(super) async fn repeat(&self, output: Output, mut once: impl AsyncFnMut() -> Result) -> Result {
        let Some(pause) = self.watch else { return once().await };
        let mut rounds = 0;
        loop {
            match once().await {
                Err(Failure::Nothing) => {}
                // Keep watching: the end of an outage is interesting too.
                Err(Failure::Failed(why)) if rounds > 0 => output.warn(&why),
                end => end?,
            }
            output.flush()?;
            rounds += 1;
            if self.rounds.is_some_and(|most| rounds >= most) {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
        }
    }
}
