//! How far a long command has come, on a terminal.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::Output;

impl Output {
    /// A counter on the terminal; invisible elsewhere. `total`, if it is known, makes it a bar.
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
        bar.with_message(what)
    }
}

/// A rate in whole numbers.
fn rate(state: &ProgressState, text: &mut dyn std::fmt::Write) {
    let _ = write!(text, "{:.0}/s", state.per_sec()); // a bar that cannot be drawn is not drawn
}
