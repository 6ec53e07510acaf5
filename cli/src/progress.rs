//! The progress of a long command: a bar on a terminal, lines of JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;

use crate::output::Output;

/// The time between two lines for programs.
const PERIOD: Duration = Duration::from_secs(2);

/// One line for programs.
#[derive(Serialize)]
struct Line {
    /// What is counted.
    progress: &'static str,
    done: u64,
    /// `None` if the total is unknown.
    total: Option<u64>,
}

impl Output {
    /// A counter on standard error: a bar on a terminal, an object every two seconds with `--json`, nothing
    /// with `--quiet`. It lasts until it is finished.
    pub(crate) fn progress(self, what: &'static str, total: Option<u64>) -> ProgressBar {
        let hidden = self.quiet || self.json || !io::stderr().is_terminal();
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(5) };
        let bar = ProgressBar::with_draw_target(total, target);
        let form = match total {
            Some(_) => "{msg} {bar:30} {human_pos}/{human_len} {rate} {eta}",
            None => "{msg} {spinner} {human_pos} {rate}",
        };
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style.with_key("rate", rate));
        }
        if self.json && !self.quiet {
            tokio::spawn(report(bar.clone(), what));
        }
        bar.with_message(what)
    }
}

/// Writes a line from time to time until the counter is finished. If nobody reads them, that is fine.
async fn report(bar: ProgressBar, what: &'static str) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if bar.is_finished() {
            return;
        }
        let line = Line { progress: what, done: bar.position(), total: bar.length() };
        if let Ok(text) = serde_json::to_string(&line) {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// A rate in whole numbers.
fn rate(state: &ProgressState, text: &mut dyn std::fmt::Write) {
    let _ = write!(text, "{:.0}/s", state.per_sec()); // a bar that cannot be drawn is not drawn
}
