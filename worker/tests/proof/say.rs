//! What worker processes tell whoever started them.

use std::io::Write;

/// One whole line in one write. A parent that is gone does not matter any more.
pub(crate) fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

pub(crate) fn say(what: char, number: u32) {
    tell(&format!("{what} {number}"));
}
